"""Compares what `what-if` measures of an edit with what the repaired program gains.

For each planted slowness of tests/programs/profile/slow.c: the slow program is recorded and
profiled (is the cause named first?). Then the slow program, the repaired one and `what-if` run in
turns, each in new processes, since the time of a process differs from that of the next one. Printed
are medians over the turns:

    bare         the slow and the repaired program, without cutape
    what-if      as recorded and edited
    recorded     how much longer the calls take as recorded than in the bare program: the median of
                 the ratios within turns, with the quartiles, and nanoseconds for each call
    no pauses    the same with `--host-time none`: without the program's own time between calls

The gain of `what-if` must be within 10 % of the real one; the exit status is 1 if a row is not as
expected. ROUNDS sets the turns, DRIVER_OPTIONS further options such as `--driver null` (with
LD_LIBRARY_PATH for the bare program).
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = int(os.environ.get("ROUNDS", "9"))
TOLERANCE = 0.10
# Case: turns of the loop, edit, set or value, the edits that name the cause.
CASES = {
    "wait": (2000, ["--drop-sync", "cuStreamSynchronize"], ["drop-sync"]),
    "pageable": (100, ["--pin-memory", "cuMemcpyHtoDAsync"], ["pin-memory"]),
    "serial": (100, ["--overlap", "kernel:work"], ["overlap"]),
    "tiny": (200, ["--graph", "kernel:work"], ["graph"]),
    "shape": (50, ["--launch-shape", "work=512x128"], ["kernel"]),
}
DRIVER_OPTIONS = os.environ.get("DRIVER_OPTIONS", "").split()


def run(command, log, expected=(0,)):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    with log.open("a") as file:
        file.write(f"$ {' '.join(map(str, command))}\n{done.stdout[-20000:]}{done.stderr[-4000:]}status {done.returncode}\n")
    if done.returncode not in expected:
        raise RuntimeError(f"status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done


def loop_ms(done):
    return int(re.search(r"loop in ns: (\d+)", done.stdout)[1]) / 1e6


class Refused(Exception):
    pass


def what_if(cutape, options, report, log):
    """The report, and milliseconds as recorded and edited."""
    run([cutape, "what-if", *options, "--format", "json", "-o", report], log, (0, 1))
    tried = json.loads(report.read_text())
    measured = tried["measured"]
    if measured is None:
        raise Refused(tried["refused"])
    return tried, measured["recorded_ns"]["median"] / 1e6, measured["edited_ns"]["median"] / 1e6


def ratio(measured, bare, calls):
    """By how much times differ within turns: `+1.2% [+0.9 .. +1.5] +12 ns`."""
    parts = sorted(100 * (one / other - 1) for one, other in zip(measured, bare))
    low, middle, high = statistics.quantiles(parts, n=4, method="inclusive") if len(parts) > 1 else parts * 3
    each = statistics.median(one - other for one, other in zip(measured, bare)) * 1e6 / calls
    return f"{middle:+5.1f}% [{low:+.1f} .. {high:+.1f}] {each:+5.0f} ns/call"


def case(name, package, results):
    turns, edit, named = CASES[name]
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    program, cutape = package / "bench" / "slow", package / "cutape"
    trace, profile = folder / "slow.cutape", folder / "profile.json"
    recorded = run([cutape, "record", "--overwrite", "-o", trace, "--", program, name, turns], log)
    run([cutape, "profile", trace, *DRIVER_OPTIONS, "--format", "json", "-o", profile, "--repeat", "2"], log)
    text = run([cutape, "profile", trace, *DRIVER_OPTIONS], log).stdout
    (folder / "profile.txt").write_text(text)
    advice = json.loads(profile.read_text())["summary"].get("advice", [])
    first = advice[0]["edit"] if advice else "none"
    options = [trace, *DRIVER_OPTIONS, *edit, "--profile", profile]
    slow, fixed, was, now, unpaused = [], [], [], [], []
    try:
        for _ in range(ROUNDS):
            slow.append(loop_ms(run([program, name, turns], log)))
            tried, recorded_side, edited_side = what_if(cutape, options, folder / "what-if.json", log)
            was.append(recorded_side)
            now.append(edited_side)
            fixed.append(loop_ms(run([program, name, "fixed", turns], log)))
            unpaused.append(what_if(cutape, [*options, "--host-time", "none"], folder / "unpaused.json", log)[1])
    except Refused as why:
        return f"{name:<9} not possible: {why}", False
    bare, repaired, before, after = map(statistics.median, (slow, fixed, was, now))
    real, gain = bare - repaired, before - after
    off = gain / real - 1 if real else float("inf")
    predicted = tried["predicted"] or {}
    guess = predicted.get("edited_ns")
    guess = f"{(predicted.get('recorded_ns') or 0) / 1e6:8.3f} -> {'   ?' if guess is None else f'{guess / 1e6:8.3f}'}"
    equal = f"{tried['compared'] - len(tried['differing'])}/{tried['compared']}"
    good = abs(off) <= TOLERANCE and first in named and not tried["differing"]
    rows = [
        f"{name:<9} first: {first:<12} bare {bare:8.3f} -> {repaired:8.3f} ms  what-if {before:8.3f} -> {after:8.3f}  "
        f"gain {off:+7.1%} off  predicted {guess:<20} bytes {equal:<6} {'ok' if good else 'NO'}",
        f"          recorded {ratio(was, slow, tried['repeated'])}  no pauses {ratio(unpaused, slow, tried['repeated'])}  "
        f"edited {ratio(now, fixed, tried['repeated'])}  while recording {loop_ms(recorded):8.3f} ms",
    ]
    return "\n".join(rows), good


def main():
    package, results = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    results.mkdir(parents=True, exist_ok=True)
    began, rows, good = time.monotonic(), [], True
    for name in sys.argv[3:] or CASES:
        try:
            row, is_good = case(name, package, results)
        except (RuntimeError, subprocess.TimeoutExpired, KeyError, TypeError) as error:
            row, is_good = f"{name:<9} {type(error).__name__}: {error}", False
        rows.append(row)
        good &= is_good
        print(row, flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    (results / "table.txt").write_text("\n".join(rows) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
