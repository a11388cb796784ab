"""Cuts a step out of traces, with memory from recorded calls and from a replay, and with whole images
and the code that the part uses of them (--images used), and replays and checks the parts. Prints a
table. The exit status is 1 if a part diverges or has other findings than the source, or if a step of a
training with --state replay has more than a tenth of the calls, or with --images used of the bytes.
"""

import json
import os
import sys
import time
from itertools import product
from pathlib import Path

from real import chosen
from run import Ended, machine

COLUMNS = ["state", "images", "calls", "part", "ratio %", "KiB", "part KiB", "size %", "trim s", "put KiB", "divergences", "elsewhere", "findings"]
# What is cut out of the trace of a program: an NVTX range, or launches.
CHOICES = {
    "torch_nvtx": ["--calls", "range:train/step[25]"],
    "cudart_nvtx": ["--launches", "3"],
    "cudart_streams": ["--launches", "1..2"],
    "cudart_graph": ["--launches", "2..4"],
    "clean.memory_history": ["--calls", "range:step[20]"],
    "torch_training": ["--launches", "200..230"],
    "cupy_raw": ["--launches", "5..8"],
}
# Of a trace that is given, or of another program.
OTHERWISE = ["--launches", "5..8"]
# A step of thirty has at most a tenth of the calls, and of the bytes with the code that it uses.
STEPS = ["torch_nvtx"]


def report_of(words, file):
    file.unlink(missing_ok=True)
    ended = Ended([*words, "--report", file])
    report = json.loads(file.read_text()) if file.exists() else None
    file.unlink(missing_ok=True)
    return report, ended


def checked(cutape, trace):
    """The findings about calls of a trace: their rules, by the index of their call."""
    ended = Ended([cutape, "check", "--format", "json", trace])
    try:
        return [(found["call"]["call"], found["rule"]) for found in json.loads(ended.out)["findings"]]
    except (ValueError, KeyError, TypeError):
        return None


def indices(cutape, trace):
    """The indices that the calls of a part have in its source."""
    cut = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)["trace"]["cut"]
    ranges = [word.split("..") for word in cut["calls"].split(",") if word]
    return [index for word in ranges for index in range(int(word[0]), int(word[-1]) + (len(word) == 1))], cut["source_calls"]


def row(name, source, choice, state, images, cutape, results):
    cells, problems = {"state": state, "images": images}, []
    part = results / f"{name}.{state}.{images}.part.cutape"
    part.unlink(missing_ok=True)
    cut = Ended([cutape, "trim", source, *choice, "--state", state, "--images", images, "-o", part])
    cells["trim s"] = f"{cut.seconds:.1f}"
    if cut.status != 0:
        return cells, [f"trim: {cut.message()[-300:]}"]
    kept, all_calls = indices(cutape, part)
    sizes = [trace.stat().st_size for trace in (source, part)]
    cells["calls"], cells["part"] = all_calls, len(kept)
    cells["ratio %"] = f"{100 * len(kept) / all_calls:.1f}"
    cells["KiB"], cells["part KiB"] = (size >> 10 for size in sizes)
    cells["size %"] = f"{100 * sizes[1] / sizes[0]:.1f}"
    if sizes[1] > sizes[0]:
        problems.append("the part is larger than its source")
    if state == "replay" and name in STEPS and len(kept) * 10 > all_calls:
        problems.append("the step has more than a tenth of the calls")
    if state == "replay" and images == "used" and name in STEPS and sizes[1] * 10 > sizes[0]:
        problems.append("the step has more than a tenth of the bytes")
    report, ended = report_of([cutape, "replay", "--keep-going", part], results / "report.json")
    if report is None:
        return cells, [*problems, f"replay: {ended.message()[:300]}"]
    cells["divergences"] = report["divergence_count"]
    cells["put KiB"] = report["memory_bytes_put"] >> 10
    cells["elsewhere"] = len(report["translated"])
    for found in report["divergences"][:3]:
        problems.append(f"call {found['call']} {found['function']}: expected {found['expected']}, received {found['received']}"[:200])
    problems += [f"{note} ({count})"[:250] for note, count in report["notes"].items() if "left out" in note]
    if report["died"]:
        problems.append(report["died"]["text"])
    before, after = checked(cutape, source), checked(cutape, part)
    if before is None or after is None:
        return cells, [*problems, "check: no findings could be read"]
    in_source = sorted(found for found in before if found[0] in set(kept))
    in_part = sorted((kept[call], rule) for call, rule in after if call is not None and call < len(kept))
    cells["findings"] = "same" if in_source == in_part else "OTHER"
    if in_source != in_part:
        problems.append(f"findings: {in_source[:5]} in the source, {in_part[:5]} in the part")
    return cells, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    traces = [Path(word) for word in sys.argv[3:] if Path(word).is_file()]
    names = [word for word in sys.argv[3:] if not Path(word).is_file()]
    is_named = lambda name: any(word in name for word in names)
    wanted = lambda name: is_named(name) if sys.argv[3:] else name in CHOICES
    programs, missing = chosen(["clean.memory_history"], package, results, wanted)
    lines = ["  ".join([f"{'program':24}"] + [f"{column:>11}" for column in COLUMNS])]
    print(lines[0])
    wrong = []

    def add(name, trace):
        for state, images in product(("recorded", "replay"), ("whole", "used")):
            cells, problems = row(name, trace, CHOICES.get(name, OTHERWISE), state, images, cutape, results)
            lines.append("  ".join([f"{name:24}"] + [f"{str(cells.get(column, '-')):>11}" for column in COLUMNS]))
            # At once, for when the time is limited.
            print(lines[-1], flush=True)
            for problem in problems:
                print(f"    {problem}", flush=True)
            wrong.extend(f"{name} {state} {images}: {problem}" for problem in problems)

    for trace in traces:
        add(trace.stem, trace)
    for name, run in programs:
        # Once beforehand: programs compile and cache at first use.
        Ended(run)
        trace = results / f"{name}.trim.cutape"
        trace.unlink(missing_ok=True)
        recorded = Ended([cutape, "record", "-o", trace, "--", *run])
        if trace.exists():
            add(name, trace)
        else:
            wrong.append(f"{name}: not recorded: {recorded.message()[-200:]}")
    end = ["", *wrong, *missing, f"{len(wrong)} problems"]
    text = "\n".join([*lines, *end]) + "\n"
    here = machine(cutape, results, package / "programs")
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{here}\n{text}")
    print("\n".join(end))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
