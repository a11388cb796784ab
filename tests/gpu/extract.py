"""Extracts launches of recorded programs, and runs each in a process of its own. Prints a table. The
exit status is 1 if fewer than 95 of 100 launches give what the replay gave, bit for bit.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from real import chosen
from run import Ended, machine

# Launches of a program, chosen from all its kernels and from all over its trace.
SAMPLE = os.environ.get("SAMPLE", "60")
# Processes at a time: most of a launch's time is the start of the driver.
JOBS = os.environ.get("JOBS", "6")
RESULTS = ["same", "nondeterministic", "different", "failed", "refused"]
COLUMNS = ["launches", *RESULTS, "left out", "graph", "MiB", "extract s", "run s"]
# Programs of the package that call the driver API without the runtime.
OWN = [f"clean.{name}" for name in (
    "launch_vector_add", "launch_struct", "launch_ex", "launch_cooperative", "launch_texture",
    "launch_variables", "launch_heap", "module_globals", "module_load_file", "graph_kernel_update", "managed")]


def compiled(source, target):
    """The extracted program, compiled once for all; None without a compiler."""
    for compiler, options in (("c++", ["-std=c++11"]), ("cc", ["-x", "c", "-std=c99"])):
        if shutil.which(compiler):
            words = [compiler, *options, "-O2", "-o", target, source, "-ldl", "-lm"]
            built = Ended(words)
            if built.status == 0:
                return target
            print(f"{compiler}: {built.message()[-300:]}", file=sys.stderr)
    return None


def row(name, trace, cutape, results):
    """Extracts and runs launches of a trace."""
    cells, problems = {}, []
    folder, found = results / "extracted" / name, results / f"{name}.extract.json"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    found.unlink(missing_ok=True)
    extracted = Ended([cutape, "extract", trace, "--all", "--sample", SAMPLE, folder])
    cells["extract s"] = f"{extracted.seconds:.1f}"
    if extracted.status != 0:
        return cells, [f"extract: {extracted.message()[-300:]}"]
    index = json.loads((folder / "index.json").read_text())
    cells["left out"] = sum(map(len, index["left_out"].values()))
    cells["graph"], cells["MiB"] = index["captured"], index["contents_bytes"] >> 20
    problems += [f"{len(calls)} left out, e.g. call {calls[0]}: {why}" for why, calls in index["left_out"].items()]
    if index["divergences"]:
        problems.append(f"the replay has {index['divergences']} divergences")
    program = results / "launch"
    if not program.exists():
        compiled(folder / "launch.cpp", program)
    words = [sys.executable, folder / "run_all.py", "--jobs", JOBS, "--json", found]
    begin = time.monotonic()
    ended = Ended([*words, "--program", program] if program.exists() else words)
    cells["run s"] = f"{time.monotonic() - begin:.1f}"
    (results / f"{name}.extract.txt").write_bytes(ended.out)
    if not found.exists():
        return cells, [*problems, f"run_all.py: {ended.message()[-300:]}"]
    ends = json.loads(found.read_text())["results"]
    cells["launches"] = len(ends)
    cells.update({result: sum(end["result"] == result for end in ends) for result in RESULTS})
    for end in ends:
        if end["result"] != "same":
            problems.append(f"{end['file']} {end['kernel'][:60]}: {'; '.join(end['lines'][-2:])}")
    # The program in Python gives the same result.
    for end in ends[:1] + ends[-1:]:
        script = Ended([sys.executable, folder / "launch.py", "--repeat", "0", folder / end["file"]])
        last = script.out.decode().splitlines()[-1:] or [script.message()[-200:]]
        if last != end["lines"][-1:]:
            problems.append(f"launch.py {end['file']}: {last[0]}, the C++ program: {end['lines'][-1]}")
    shutil.rmtree(folder)
    return cells, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    traces = [Path(word) for word in sys.argv[3:] if Path(word).is_file()]
    names = [word for word in sys.argv[3:] if not Path(word).is_file()]
    wanted = lambda name: not sys.argv[3:] or any(word in name for word in names)
    programs, missing = chosen(OWN, package, results, wanted)
    lines = ["  ".join([f"{'program':24}"] + [f"{column:>9}" for column in COLUMNS])]
    print(lines[0])
    wrong, total, same = [], 0, 0

    def add(name, trace):
        nonlocal total, same
        cells, problems = row(name, trace, cutape, results)
        total += cells.get("launches", 0) + cells.get("left out", 0)
        same += cells.get("same", 0)
        lines.append("  ".join([f"{name:24}"] + [f"{str(cells.get(column, '-')):>9}" for column in COLUMNS]))
        # At once, for when the time is limited.
        print(lines[-1], flush=True)
        for problem in problems[:12]:
            print(f"    {problem}", flush=True)
        wrong.extend(f"{name}: {problem}" for problem in problems)

    for trace in traces:
        add(trace.stem, trace)
    for name, run in programs:
        # Once beforehand: programs compile and cache at first use.
        Ended(run)
        trace = results / f"{name}.extract.cutape"
        trace.unlink(missing_ok=True)
        recorded = Ended([cutape, "record", "-o", trace, "--", *run])
        if trace.exists():
            add(name, trace)
        else:
            wrong.append(f"{name}: not recorded: {recorded.message()[-200:]}")
    share = 100 * same / total if total else 0
    end = ["", *wrong, *missing, f"{same} of {total} launches ({share:.1f} %) give what the replay gave, bit for bit"]
    text = "\n".join([*lines, *end]) + "\n"
    here = machine(cutape, results, package / "programs")
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{here}\n{text}")
    print("\n".join(end[-len(missing) - 1:]))
    return 0 if share >= 95 else 1


if __name__ == "__main__":
    sys.exit(main())
