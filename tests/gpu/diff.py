"""Records programs twice and compares the traces, then a program with changed versions of itself. Prints
a table. The exit status is 1 if two recordings of one program differ, or if the first line of a
comparison does not name the change.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from real import chosen
from run import AT_ONCE, SOURCES, Ended, machine

COLUMNS = ["calls", "differences", "not compared", "diff s"]
# The changes of tests/programs/diff/changes.c: the kind of difference, and words of the first line.
CHANGES = {
    "base": (None, ""),
    "CHANGED_KERNEL": ("code", "cuModuleLoadData: code of fill differs"),
    "CHANGED_SHAPE": ("shape", "cuLaunchKernel fill: block 256x1x1 → 128x1x1"),
    "CHANGED_PARAMETER": ("argument", "cuLaunchKernel fill: kernel parameter 1 1001 → 7"),
    "CHANGED_DATA": ("data", "cuMemcpyHtoD_v2: srcHost from byte 2800"),
    "LEAKED_MODULE": ("leak", "cuModuleUnload: in A only; B leaks module"),
    "MORE_CALLS": ("call", "cuEventCreate: in B only, and the 2 calls after it"),
    "REORDERED": ("order", "cuMemsetD32Async: threads reordered at stream"),
    "RESTARTED": (None, ""),
    "COMMENTED": (None, ""),
}


def recorded(cutape, folder, run):
    """The traces of a program and of the processes that it starts, which have its end in their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    ended = Ended([cutape, "record", "-o", folder / "t.cutape", "--", *run])
    return sorted(folder.glob("*.cutape")), ended


def compare(cutape, a, b, *options):
    """The report, the first line, the seconds."""
    ended = Ended([cutape, "diff", "--format", "json", *options, a, b])
    if ended.status not in (0, 1):
        return None, ended.message(), ended.seconds
    first = Ended([cutape, "diff", *options, a, b]).out.decode(errors="replace").splitlines()[0]
    return json.loads(ended.out), first, ended.seconds


def twice(name, run, cutape, results):
    """Compares two recordings of a program."""
    cells, problems = {}, []
    # Once beforehand: programs compile and cache at first use.
    Ended(run)
    sides = [recorded(cutape, results / "traces" / name / side, run) for side in "ab"]
    (traces_a, _), (traces_b, ended) = sides
    if not traces_a or len(traces_a) != len(traces_b):
        return cells, [f"{len(traces_a)} and {len(traces_b)} traces: {ended.message()[-200:]}"]
    for a, b in zip(traces_a, traces_b):
        report, first, seconds = compare(cutape, a, b)
        if report is None:
            problems.append(first[:300])
            continue
        cells["calls"] = cells.get("calls", 0) + report["traces"][0]["calls"]
        cells["differences"] = cells.get("differences", 0) + report["total"]
        left_out = sum(abs(one["counts"][0] - one["counts"][1]) for one in report["left_out"])
        cells["not compared"] = cells.get("not compared", 0) + left_out + report["made_by_another_thread"]
        cells["diff s"] = f"{seconds:.2f}"
        if report["differs"]:
            problems += [first[:300]] + [f"{kind}: {count}" for kind, count in report["counts"].items()]
            problems += [f"    {one['title'][:300]}" for one in report["differences"][1:6]]
    if not problems:
        for trace in traces_a + traces_b:
            trace.unlink()
    return cells, problems


def changed(name, base, cutape, package, results):
    """Compares a program with a changed version of itself."""
    kind, words = CHANGES[name]
    traces, ended = recorded(cutape, results / "traces" / f"diff.{name}", [package / "diff" / name])
    if len(traces) != 1:
        return {}, [f"not recorded: {ended.message()[-200:]}"]
    report, first, seconds = compare(cutape, base, traces[0])
    if report is None:
        return {}, [first[:300]]
    cells = {"calls": report["traces"][1]["calls"], "differences": report["total"], "diff s": f"{seconds:.2f}"}
    is_right = words in first and kind in report["counts"] if kind else not report["differs"]
    return cells, [] if is_right else [f"expected {kind} {words!r}: {first[:300]}"]


def padded(cutape, package, results):
    """Padding that differs in each run is noise, and a changed member beside it is not."""
    runs = [("a", "PADDED"), ("again", "PADDED"), ("noise", "PADDED"), ("b", "PADDED_CHANGED")]
    traces = []
    for number, (name, program) in enumerate(runs):
        os.environ["PADDING"] = str(number)
        found, ended = recorded(cutape, results / "traces" / f"diff.padded.{name}", [package / "diff" / program])
        if len(found) != 1:
            return {}, [f"not recorded: {ended.message()[-200:]}"]
        traces += found
    noise = ["--noise", traces[2]]
    same, first_same, _ = compare(cutape, traces[0], traces[1], *noise)
    other, first_other, seconds = compare(cutape, traces[0], traces[3], *noise)
    if same is None or other is None:
        return {}, [first_same[:300], first_other[:300]]
    cells = {"calls": other["traces"][1]["calls"], "differences": other["total"], "diff s": f"{seconds:.2f}"}
    problems = [f"the same program: {first_same[:300]}"] if same["differs"] else []
    if "by_struct: kernel parameter 0 at byte 8" not in first_other:
        problems.append(f"a changed member: {first_other[:300]}")
    return cells, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    wanted = lambda name: not sys.argv[3:] or any(word in name for word in sys.argv[3:])
    lines = ["  ".join([f"{'program':34}"] + [f"{column:>12}" for column in COLUMNS])]
    print(lines[0])
    wrong = []

    def add(name, row):
        cells, problems = row
        lines.append("  ".join([f"{name:34}"] + [f"{str(cells.get(column, '-')):>12}" for column in COLUMNS]))
        # At once, for when the time is limited.
        print(lines[-1], flush=True)
        for problem in problems:
            print(f"    {problem}", flush=True)
        wrong.extend(f"{name}: {problem}" for problem in problems)

    names = [name for name in CHANGES if wanted(f"diff.{name}")]
    if names:
        (base,), _ = recorded(cutape, results / "traces" / "diff", [package / "diff" / "base"])
        for name in names:
            add(f"diff.{name}", changed(name, base, cutape, package, results))
    if wanted("diff.PADDED"):
        add("diff.PADDED", padded(cutape, package, results))
    own = []
    for source in sorted((SOURCES / "clean").glob("*.c")):
        name = f"clean.{source.stem}"
        if not wanted(name) or not (package / "programs" / name).exists():
            continue
        own.append((name, [package / "programs" / name]))
    with ThreadPoolExecutor(AT_ONCE) as workers:
        rows = workers.map(lambda one: twice(*one, cutape, results), own)
        for (name, _), row in zip(own, rows):
            add(name, row)
    programs, missing = chosen([], package, results, wanted)
    for name, run in programs:
        add(name, twice(name, run, cutape, results))
    end = ["", *wrong, *missing, f"{len(wrong)} problems"]
    here = machine(cutape, results, package / "programs")
    text = "\n".join([*lines, *end]) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{here}\n{text}")
    print("\n".join(end[-len(missing) - 1:]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
