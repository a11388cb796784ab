"""Recording that stops and starts: the same results, what it costs, replay and check. Prints a table:
`ratios` and `noise` are the median over blocks of steps, and where 95 % of the blocks are.
The exit status is 1 if something differs.
"""

import json
import sys
from pathlib import Path

from real import PROGRAMS, has
from run import Ended

COLUMNS = ["same", "pauses", "recorded", "left out", "sum", "never us", "between us", "recorded us", "ratios", "noise", "findings", "diverging", "replay s"]


def status(cutape, trace):
    """What a trace says it has, and what was left out."""
    said = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)
    left_out = said["trace"].get("left_out") or {"calls": 0, "pauses": 0}
    return {"calls": said["calls"]["total"], "left_out": left_out["calls"], "pauses": left_out["pauses"]}


def judged(cutape, trace, results, cells, problems):
    """Checks and replays a trace."""
    checked = Ended([cutape, "check", "--format", "json", trace])
    found = [line for line in checked.out.decode().splitlines() if '"severity": "error"' in line or '"severity":"error"' in line]
    cells["findings"] = len(found)
    if checked.status != 0:
        problems.append(f"check: {checked.message()[-300:]} {checked.out.decode()[:300]}")
    file = results / "report.json"
    file.unlink(missing_ok=True)
    replayed = Ended([cutape, "replay", "--keep-going", "--report", file, trace])
    cells["replay s"] = f"{replayed.seconds:.1f}"
    got = json.loads(file.read_text()) if file.exists() else None
    if got is None:
        problems.append(f"replay: {replayed.message()[:300]}")
        return
    cells["diverging"] = got["divergence_count"]
    for found in got["divergences"][:3]:
        problems.append(f"call {found['call']} {found['function']} {found['parameter']}: {found['expected']}, {found['received']}")
    if got["died"]:
        problems.append(got["died"]["text"])
    print(f"{trace.name}: {replayed.out.decode().splitlines()[:3]}", flush=True)


def threads(cutape, package, results):
    """The program with 8 threads and one that stops and starts."""
    program = package / "ctl" / "pauses"
    cells, problems = {}, []
    counts = {}
    for what in ("whole", "toggled"):
        trace = results / f"pauses.{what}.cutape"
        trace.unlink(missing_ok=True)
        ended = Ended([cutape, "record", "-o", trace, "--", program, what])
        if ended.status != 0 or not trace.exists():
            return cells, [f"{what}: {ended.message()[-300:]}"]
        counts[what] = status(cutape, trace)
    bare = Ended([program, "whole"])
    cells["same"] = "yes" if bare.out == ended.out else "NO"
    whole, toggled = counts["whole"], counts["toggled"]
    cells["pauses"], cells["recorded"], cells["left out"] = toggled["pauses"], toggled["calls"], toggled["left_out"]
    made = toggled["calls"] + toggled["left_out"]
    cells["sum"] = "exact" if made == whole["calls"] else f"{made - whole['calls']:+}"
    if cells["sum"] != "exact" or cells["same"] != "yes":
        problems.append(f"made {whole['calls']}, counted {made}")
    judged(cutape, trace, results, cells, problems)
    return cells, problems


def training(cutape, results, cycles):
    source = PROGRAMS / "ctl_training.py"
    cells, problems = {}, []
    run = [sys.executable, source]
    bare = Ended([*run, "never", str(cycles)])
    if bare.status != 0:
        return cells, [f"bare: {bare.message()[-500:]}"]
    trace = results / "training.cutape"
    trace.unlink(missing_ok=True)
    recorded = Ended([cutape, "record", "--start-paused", "-o", trace, "--", *run, "cycles", str(cycles)])
    if recorded.status != 0 or not trace.exists():
        return cells, [f"recorded: {recorded.message()[-500:]}"]
    before, after = (json.loads(one.out.splitlines()[-1]) for one in (bare, recorded))
    cells["same"] = "yes" if before["losses"] == after["losses"] else "NO"
    if cells["same"] != "yes":
        problems.append("other losses than bare")
    cells["never us"], cells["between us"], cells["recorded us"] = (f"{after[key]:.1f}" for key in ("never us", "between us", "recorded us"))
    for name in ("ratios", "noise"):
        of = sorted(after[name])
        low, middle, high = (of[len(of) * part // 40] for part in (1, 20, 39))
        cells[name] = f"{middle:.3f} {low:.2f}-{high:.2f}"
    print(f"losses {cells['same']}, {after['changed']} changes, {cells}", flush=True)
    print(f"bare: {before['never us']:.1f} us a step, {bare.seconds:.1f} s; recorded {recorded.seconds:.1f} s", flush=True)
    if after["changed"] != 2 * cycles:
        problems.append(f"{after['changed']} stops and starts of {2 * cycles}")
    known = status(cutape, trace)
    cells["pauses"], cells["recorded"], cells["left out"] = known["pauses"], known["calls"], known["left_out"]
    judged(cutape, trace, results, cells, problems)
    return cells, problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    cycles = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    rows = {"threads": lambda: threads(cutape, package, results)}
    missing = []
    if has("torch"):
        rows["training"] = lambda: training(cutape, results, cycles)
    else:
        missing.append("training: Python has no torch")
    lines = ["  ".join([f"{'program':10}"] + [f"{column:>15}" for column in COLUMNS])]
    wrong = []
    for name, row in rows.items():
        cells, problems = row()
        mark = "  !" if problems else ""
        print(name, cells, problems, flush=True)
        lines.append("  ".join([f"{name:10}"] + [f"{str(cells.get(column, '-')):>15}" for column in COLUMNS]) + mark)
        wrong += [f"{name}: {problem}" for problem in problems]
    text = "\n".join([*missing, *wrong, "", *lines, ""])
    print(text)
    (results / "table.txt").write_text(text)
    sys.exit(1 if wrong else 0)


main()
