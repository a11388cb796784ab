"""Random programs on real hardware: bare, recorded, checked, replayed, with all cores busy. With
NULL_DRIVER=1 on the null driver of the package, under its schedules.

Each property is tried with several programs in one process, and where it does not hold with each half
of them, as long as there is time. The exit status is 1 if one fails alone, or if some fail together only.
"""

import collections
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run
from run import Ended, busy_loops, machine

# Where several processes make contexts, each takes up to a second.
run.TIMEOUT = 600

# Programs of one process: starting one takes longer than many programs. Its context lasts.
BATCH = 50
os.environ["KEEP_CONTEXT"] = "1"
# Processes of programs: with more of them, the device does little but change between contexts.
AT_ONCE = int(os.environ.get("AT_ONCE", max(1, (os.cpu_count() or 1) // 2)))
# Busy loops beside them, so that each is late at times.
LOAD = int(os.environ.get("LOAD", os.cpu_count() or 1))
NULL_DRIVER = os.environ.get("NULL_DRIVER") == "1"
# Of the program, and of the replay.
SCHEDULES = [("eager", "lazy"), ("lazy", "random"), ("random", "eager")]


# The first seeds of batches in which the replay could not tell who wrote some bytes, and they mattered.
doubtful = []


def programs(path):
    """The programs of a package: seed, lines of operations, lines that it prints."""
    found = []
    for line in path.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "program":
            found.append((rest, [], []))
        elif word == "expected":
            found[-1][2].append(rest)
        else:
            found[-1][1].append(line)
    return found


def under(batch, schedule):
    """The environment for a schedule of the null driver. Work that a program waits for without a call
    would never run under the lazy one."""
    silent = any(line.split()[1] in ("poll", "signal") for _, lines, _ in batch for line in lines)
    if schedule == "random" or (schedule == "lazy" and silent):
        schedule = f"random:{batch[0][0]}"
    return {**os.environ, "CUTAPE_NULL_SCHEDULE": schedule}


def failure(package, folder, batch, number):
    """The first property that does not hold of programs in one process, and what happened instead."""
    folder.mkdir(parents=True, exist_ok=True)
    cutape, own = str(package / "cutape"), package / "random"
    driver, bare, recorded, replayed = [], {}, {}, {}
    if NULL_DRIVER:
        driver = ["--driver", "null"]
        program, replay = SCHEDULES[number % len(SCHEDULES)]
        recorded, replayed = {"env": under(batch, program)}, {"env": under(batch, replay)}
        bare = {"env": {**recorded["env"], "LD_PRELOAD": str(package / "libcutape_null.so")}}
    command, printed = [str(own / "interpreter"), str(own / "mix.ptx")], []
    for seed, operations, lines in batch:
        file = folder / f"{seed}.txt"
        file.write_text("".join(line + "\n" for line in operations))
        command.append(str(file))
        printed += lines
    printed = "".join(line + "\n" for line in [*printed, "EXIT-SUCCESS"]).encode()
    trace, report = folder / "recorded.cutape", folder / "report.json"
    trace.unlink(missing_ok=True)

    def differs(ended):
        if ended.status != 0 or ended.err:
            return f"status {ended.status}: {ended.message()[-400:]}"
        pairs = zip(ended.out.decode().splitlines(), printed.decode().splitlines())
        wrong = [f"{got} for {wanted}" for got, wanted in pairs if got != wanted]
        return "; ".join(wrong[:4]) or (ended.out != printed and "other lines") or None

    if problem := differs(Ended(command, **bare)):
        return "bare", problem
    if problem := differs(Ended([cutape, "record", *driver, "-o", str(trace), "--", *command], **recorded)):
        return "recorded", problem
    checked = Ended([cutape, "check", "--format", "json", str(trace)])
    if checked.status not in (0, 1) or checked.err:
        return "checked", f"status {checked.status}: {checked.message()[-400:]}"
    findings = json.loads(checked.out)
    findings = findings["findings"] if isinstance(findings, dict) else findings
    wrong = [found for found in findings if found["severity"] != "advice"]
    if wrong:
        return "checked", f"{wrong[0]['rule']} {wrong[0]['chain']}"
    # What the recording cannot tell is no divergence, and says so.
    command = [cutape, "replay", *driver, "--allow", "consequence", "--report", str(report), str(trace)]
    ended = Ended(command, **replayed)
    if ended.status == 0 and json.loads(report.read_text()).get("consequences"):
        doubtful.append(batch[0][0])
    if ended.status != 0:
        return "replayed", (ended.out.decode(errors="replace") + ended.message())[-600:]
    return None


def try_batch(package, results, name, batch, number, end):
    """The failures of a batch: seed, property, what happened; of its halves, where it fails. `None` if
    no time was left for it."""
    if time.monotonic() >= end:
        return None
    folder = results / name
    if not (wrong := failure(package, folder, batch, number)):
        remove(folder)
        return []
    print(f"{name}: {len(batch)} programs: {': '.join(wrong)}", flush=True)
    half = len(batch) // 2
    halves = [batch[:half], batch[half:]] if half else []
    found = [
        try_batch(package, results, f"{name}-{at}", part, number, end) for at, part in enumerate(halves)
    ]
    failed = [one for failures in found for one in failures or []]
    if failed:
        remove(folder)
    seeds = batch[0][0] if len(batch) == 1 else f"{batch[0][0]} to {batch[-1][0]}, together"
    return failed or [(seeds, *wrong)]


def remove(folder):
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    count = int(sys.argv[3])
    first, seconds = (int(word) for word in (*sys.argv[4:6], *("0", "100000")[len(sys.argv) - 4 :]))
    end = time.monotonic() + seconds
    results.mkdir(parents=True, exist_ok=True)
    written = os.environ.get("PROGRAMS", package / "random" / "programs.txt")
    chosen = programs(Path(written))[first : first + count]
    batches = [chosen[at : at + BATCH] for at in range(0, len(chosen), BATCH)]
    described = machine(package / "cutape", results, package / "programs")
    failed = []
    tried = 0

    busy = busy_loops(LOAD, seconds + run.TIMEOUT)
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found_in = lambda number: try_batch(
                package, results, f"batch-{number}", batches[number], number, end
            )
            for batch, found in zip(batches, pool.map(found_in, range(len(batches)))):
                tried += len(batch) if found is not None else 0
                failed += found or []
    finally:
        for process in busy:
            process.kill()
    lines = [described, f"{tried} of {len(chosen)} programs in time, {AT_ONCE} processes at once, {LOAD} busy loops"]
    lines += [f"{len(doubtful)} processes whose replay could not tell who wrote bytes that mattered"]
    counts = collections.Counter(name for _, name, _ in failed)
    lines += [f"{name}: {number} failures" for name, number in sorted(counts.items())] or ["no failures"]
    lines += [f"seed {seed}: {name}: {text}" for seed, name, text in failed]
    text = "\n".join(lines)
    print(text)
    (results / "table.txt").write_text(text + "\n")
    return 1 if failed else 0


sys.exit(main())
