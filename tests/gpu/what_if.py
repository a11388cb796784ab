"""Compares what `what-if` measures of an edit with what the repaired program gains.

For each planted slowness of tests/programs/profile/slow.c: the slow program is recorded and
profiled (is the cause named first?), `what-if` measures the edit, and the slow and the repaired
program run without cutape, in turns. The gain of `what-if` must be within 10 % of the real one.
Prints a table; the exit status is 1 if a row is not as expected.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = int(os.environ.get("ROUNDS", "11"))
TOLERANCE = 0.10
# Case: turns of the loop, edit, set or value, the edits that name the cause.
CASES = {
    "wait": (2000, ["--drop-sync", "cuStreamSynchronize"], ["drop-sync"]),
    "pageable": (100, ["--pin-memory", "cuMemcpyHtoDAsync"], ["pin-memory"]),
    "serial": (100, ["--overlap", "kernel:work"], ["overlap"]),
    "tiny": (200, ["--graph", "kernel:work"], ["graph"]),
    "shape": (50, ["--launch-shape", "work=512x128"], ["kernel"]),
}
ON_NULL = os.environ.get("DRIVER_OPTIONS", "").split()


def run(command, log, expected=(0,)):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    with log.open("a") as file:
        file.write(f"$ {' '.join(map(str, command))}\n{done.stdout[-20000:]}{done.stderr[-4000:]}status {done.returncode}\n")
    if done.returncode not in expected:
        raise RuntimeError(f"status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done


def loop_ms(done):
    return int(re.search(r"loop in ns: (\d+)", done.stdout)[1]) / 1e6


def case(name, package, results):
    turns, edit, named = CASES[name]
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    program, cutape = package / "bench" / "slow", package / "cutape"
    trace, profile = folder / "slow.cutape", folder / "profile.json"
    recorded = run([cutape, "record", "--overwrite", "-o", trace, "--", program, name, turns], log)
    run([cutape, "profile", trace, *ON_NULL, "--format", "json", "-o", profile, "--repeat", "2"], log)
    text = run([cutape, "profile", trace, *ON_NULL], log).stdout
    (folder / "profile.txt").write_text(text)
    advice = json.loads(profile.read_text())["summary"].get("advice", [])
    first = advice[0]["edit"] if advice else "none"
    common = [trace, *ON_NULL, *edit, "--profile", profile]
    done = run([cutape, "what-if", *common, "--format", "json", "-o", folder / "what-if.json"], log, (0, 1))
    tried = json.loads((folder / "what-if.json").read_text())
    slow, fixed = [], []
    for _ in range(ROUNDS):
        slow.append(loop_ms(run([program, name, turns], log)))
        fixed.append(loop_ms(run([program, name, "fixed", turns], log)))
    before, after = statistics.median(slow), statistics.median(fixed)
    real = before - after
    measured = tried["measured"]
    if measured is None:
        return f"{name:<9} not possible: {tried['refused']}", False
    was, now = measured["recorded_ns"]["median"] / 1e6, measured["edited_ns"]["median"] / 1e6
    gain = was - now
    off = gain / real - 1 if real else float("inf")
    predicted = tried["predicted"] or {}
    guess = predicted.get("edited_ns")
    guess = f"{(predicted.get('recorded_ns') or 0) / 1e6:8.3f} -> {'   ?' if guess is None else f'{guess / 1e6:8.3f}'}"
    equal = f"{tried['compared'] - len(tried['differing'])}/{tried['compared']}"
    good = abs(off) <= TOLERANCE and first in named and done.returncode == 0
    row = (
        f"{name:<9} first: {first:<12} bare {before:8.3f} -> {after:8.3f} ms  what-if {was:8.3f} -> {now:8.3f}  "
        f"gain {off:+7.1%} off  predicted {guess:<20} bytes {equal:<6} recorded {loop_ms(recorded):8.3f}  {'ok' if good else 'NO'}"
    )
    return row, good


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
