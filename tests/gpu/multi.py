"""Runs programs on two GPUs and prints a table. The exit status is 1 if a result is unexpected."""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

from real import PROGRAMS, command, replayed
from run import Ended, machine

COLUMNS = ["same", "traces", "calls", "findings", "divergences", "placed", "skipped", "exchanged", "one GPU"]
# Exchanges the two devices.
EXCHANGED = ["--devices", "0=1,1=0"]
# NCCL would use multicast over NVLink, which not every virtual machine has.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("OMP_NUM_THREADS", "4")


class Program:
    """The command; whether one process uses both devices; whether everything can be replayed."""

    def __init__(self, name, run, why="", both=True, replayable=True):
        self.name, self.run, self.why, self.both, self.replayable = name, run, why, both, replayable


def programs(package, results):
    for name in ("clean.two_devices", "clean.ranks"):
        yield Program(name, [package / "programs" / name], both=name == "clean.two_devices")
    folder = PROGRAMS / "multi"
    for source in (folder / "cudart_peer.cu", folder / "torch_two_devices.py"):
        yield Program(source.stem, *command(source, results))
    for source, replayable in ((folder / "torch_ranks.py", True), (folder / "torch_nccl.py", False)):
        run, why = command(source, results)
        if run is not None:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            run = [run[0], *launcher, source]
        yield Program(source.stem, run, why, both=False, replayable=replayable)


def lines(ended):
    """The printed lines, sorted, because processes print in any order."""
    return sorted(ended.out.splitlines())


def record(program, cutape, folder):
    """The bare run and the recorded run: cells, problems, traces."""
    Ended(program.run)  # what is compiled and cached at first use
    bare = Ended(program.run)
    recorded = Ended([cutape, "record", "-o", folder / f"{program.name}.cutape", "--", *program.run])
    same = lines(bare) == lines(recorded) and bare.status == recorded.status == 0
    problems = []
    if not same:
        problems.append(f"bare {bare.status} {bare.message()[-150:]}, recorded {recorded.status} {recorded.message()[-300:]}")
        problems += [f"bare {one!r}, recorded {other!r}" for one, other in zip(lines(bare), lines(recorded)) if one != other][:2]
    if b"skipped" in bare.out:
        problems.append("fewer than two GPUs: " + bare.out.decode(errors="replace").strip()[:80])
    traces = sorted(folder.glob("*.cutape"))
    if not traces:
        problems.append("no trace")
    return {"same": "yes" if same else "NO", "traces": len(traces)}, problems, traces


def together(program, cutape, folder, traces):
    """`info` of the folder shows every trace, with its rank where it has one."""
    ended = Ended([cutape, "info", "--format", "json", folder])
    shown = {entry["trace"] for entry in json.loads(ended.out)["traces"]}
    missing = [trace.name for trace in traces if trace.name not in shown]
    problems = [f"info of the folder lacks {name}: {ended.message()[:100]}" for name in missing]
    if not program.both:
        ranks = {found[1] for trace in traces if (found := re.search(r"\.rank(\d+)\.cutape$", trace.name))}
        if ranks != {"0", "1"}:
            problems.append(f"traces by rank: {sorted(trace.name for trace in traces)}")
    return problems


def said(report):
    """The first problem in a report."""
    if report["died"]:
        return report["died"]["text"]
    first = report["divergences"][0]
    return f"call {first['call']} {first['function']}: expected {first['expected']}, received {first['received']}"[:200]


def one(program, cutape, trace, cells, notes):
    """Checks one trace and replays it in every way; adds to the cells, returns problems."""
    problems = []
    add = lambda column, number: cells.__setitem__(column, cells.get(column, 0) + number)
    info = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)
    add("calls", info["calls"]["total"])
    found = trace.with_suffix(".findings.json")
    Ended([cutape, "check", "--format", "json", "--report", found, trace])
    findings = json.loads(found.read_text())["findings"]
    add("findings", len(findings))
    problems += [f"{trace.name}: {finding['rule']} on a correct program" for finding in findings[:3]]
    watchdog = [] if program.replayable else ["--watchdog", "20"]
    ways = [("divergences", [])] + ([("exchanged", EXCHANGED)] if program.both else [])
    for column, options in ways:
        _, got, message = replayed(cutape, trace, trace.with_suffix(f".{column}.json"), [*watchdog, *options])
        if got is None:
            cells[column] = "refused"
            problems.append(f"{trace.name} {' '.join(options)}: {message[:300]}")
            continue
        add(column, got["divergence_count"])
        if column == "divergences":
            cells["placed"] = [sum(pair) for pair in zip(cells.get("placed", [0, 0]), (got["placed"]["at_recorded_address"], got["placed"]["allocations"]))]
            add("skipped", sum(entry["count"] for entry in got["skipped"]))
            for entry in got["skipped"]:
                notes.setdefault(f"{entry['function']}: {entry['reason']}", set()).add(program.name)
        if got["divergence_count"] or got["died"]:
            text = f"{trace.name} {' '.join(options)}: {said(got)}"
            if program.replayable:
                problems.append(text)
            else:
                notes.setdefault(f"as expected, not all of it can be replayed: {text}", set()).add(program.name)
    # With one device hidden a trace that uses both is refused with its reasons; that of one rank
    # finds its device.
    hidden = trace.with_suffix(".hidden.json")
    ended = Ended(
        [cutape, "replay", "--keep-going", *watchdog, "--report", hidden, trace],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"},
    )
    if program.both:
        refused = ended.status == 2 and "no device is left for it" in ended.message()
        cells["one GPU"] = "refused" if refused else "NOT REFUSED"
        if not refused:
            problems.append(f"{trace.name} with one GPU: status {ended.status}: {ended.message()[:200]}")
    elif hidden.exists():
        report = json.loads(hidden.read_text())
        add("one GPU", report["divergence_count"])
        if program.replayable and not report["died"] and report["divergence_count"]:
            problems.append(f"{trace.name} with one GPU: {said(report)}")
    else:
        cells["one GPU"] = "refused"
        notes.setdefault(f"one GPU: {trace.name}: {ended.message()[:200]}", set()).add(program.name)
    return problems


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    table = ["  ".join([f"{'program':18}"] + [f"{column:>11}" for column in COLUMNS])]
    wrong, notes, ran = [], {}, 0
    for program in programs(package, results):
        if sys.argv[3:] and not any(word in program.name for word in sys.argv[3:]):
            continue
        ran += 1
        if program.run is None:
            table.append(f"{program.name:18}  skipped: {program.why}")
            continue
        folder = results / "multi" / program.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        cells, problems, traces = record(program, cutape, folder)
        if len(traces) > 1:
            problems += together(program, cutape, folder, traces)
        for trace in traces:
            problems += one(program, cutape, trace, cells, notes)
        if "placed" in cells:
            cells["placed"] = "{}/{}".format(*cells["placed"])
        row = "  ".join([f"{program.name:18}"] + [f"{str(cells.get(column, '-')):>11}" for column in COLUMNS])
        table.append(row + ("  !" if problems else ""))
        wrong += [f"{program.name}: {problem}" for problem in problems]
        print(table[-1], flush=True)
    table += ["", "said by replays:"] + [f"  {note} ({', '.join(sorted(where))})" for note, where in sorted(notes.items())]
    table += ["", *wrong, f"{ran} programs, {len(wrong)} problems"]
    text = "\n".join(table) + "\n"
    described = machine(cutape, results, package / "programs")
    (results / "multi.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{described}\n{text}")
    print("\n" + text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
