"""Records a training with `record --keep-last`, and keeps a part while it runs.

The exit status is 1 if a kept part diverges, has findings, or is missing, or if with `--memory all`
some of its results are not compared, or with `--deep` no digest of a launch is equal.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from run import Ended

PROGRAM = Path(__file__).resolve().parent / "programs" / "torch_live.py"
# Seconds of the recording that is kept.
LENGTH = int(os.environ.get("LENGTH", "25"))


def disk(path):
    """The bytes that a file takes on the disk."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def snapshots(cutape, trace):
    """The notes of a trace about snapshots of device memory."""
    command = [cutape, "dump", "--format", "json", trace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dump:
        calls = (json.loads(line) for line in dump.stdout if '"memory_snapshot"' in line)
        notes = [note for call in calls for note in call["notes"]]
    return [note for note in notes if note["kind"] == "memory_snapshot"]


def describe(notes):
    """How long memory was read, and why it was not."""
    taken = [note for note in notes if note["state"] == "taken"]
    others = sorted({note["state"] for note in notes} - {"taken"})
    total = sum(note["bytes"] for note in taken)
    if total == 0:
        return f"{len(taken)} snapshots {' '.join(others)}"
    rates = [note["nanoseconds"] / 1e6 / (note["bytes"] / 1e9) for note in taken if note["bytes"] > 1e6]
    return (
        f"{len(taken)} snapshots of {total / len(taken) / 1e9:.3f} GB, {statistics.median(rates):.0f} ms/GB "
        f"({min(rates):.0f} to {max(rates):.0f}) {' '.join(others)}"
    )


def kept(cutape, results):
    """Recordings without contents of memory and with them; True if all is right."""
    ways = ([], ["--memory", "all"], ["--deep", "1/2000"])
    return all([kept_with(cutape, results, options) for options in ways])


def kept_with(cutape, results, options):
    """A recording that is asked to keep what it has; True if all is right."""
    print("options:", *options)
    trace = results / "flight.cutape"
    for old in results.glob("flight*.cutape"):
        old.unlink()
    command = [cutape, "record", "--keep-last", "3s", *options, "-o", trace, "--", sys.executable, PROGRAM, str(LENGTH)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begin, most, asked = time.monotonic(), 0, 0
    while child.poll() is None:
        time.sleep(0.2)
        most = max(most, disk(trace))
        if asked < 2 and time.monotonic() - begin > (0.56 + 0.2 * asked) * LENGTH:
            asked += 1
            pid = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()[0]
            keep = Ended([cutape, "ctl", pid, "keep"], text=True)
            print("keep:", keep.status, keep.err.strip()[-200:])
    out, err = child.communicate()
    print("program:", out.strip().splitlines()[-1:], err.strip()[-600:])
    print(f"most on disk {most / 2**20:.1f} MiB, length {trace.stat().st_size / 2**20:.1f} MiB at the end")
    is_right = child.returncode == 0
    print(f"{'trace':24} {'calls':>8} {'left out':>9} {'MiB':>6} {'replay s':>8} {'unknown B':>10}  result")
    for path in [trace, *sorted(results.glob("flight.keep*.cutape"))]:
        replay = Ended([cutape, "replay", "--format", "json", path], text=True)
        report = json.loads(replay.out) if replay.out.startswith("{") else {}
        check = Ended([cutape, "check", path], text=True)
        findings = sorted(set(re.findall(r"^(\w+\[[\w-]+\])", check.out, re.M)))
        is_right &= replay.status == 0 and check.status == 0
        calls, left, unknown = (report.get(key, "-") for key in ("calls", "calls_left_out", "bytes_unknown"))
        is_right &= unknown == 0 or "--memory" not in options
        digests = report.get("digests", {})
        if "--deep" in options:
            # Kernels that reach memory through pointers in memory may compute something else.
            is_right &= digests.get("equal", 0) > 0
            print(f"  digests: {digests}")
        print(
            f"{path.name:24} {calls:>8} {left:>9} {path.stat().st_size / 2**20:6.1f} "
            f"{replay.seconds:8.2f} {unknown:>10}  replay {replay.status}, check {check.status} {' '.join(findings)}"
        )
        print(" ", describe(snapshots(cutape, path)), flush=True)
        if replay.status != 0:
            print(replay.out[-1500:], replay.err[-500:])
    return is_right and asked == 2


def exact(cutape, results):
    """Programs whose memory depends on all that they did, and whose recording stops and starts."""
    program, mix = (cutape.parent / name for name in ("memory/evolving", "random/mix.ptx"))
    is_right = True
    print(f"{'recording that stops':24} {'record':>6} {'replay':>6} {'compared B':>11} {'unknown B':>10}  snapshots")
    for what in ("middle", "toggled", "captures", "host_functions"):
        for options in ([], ["--memory", "all"]):
            trace = results / "exact.cutape"
            trace.unlink(missing_ok=True)
            record = Ended([cutape, "record", *options, "-o", trace, "--", program, mix, what], text=True)
            replay = Ended([cutape, "replay", "--format", "json", trace], text=True)
            report = json.loads(replay.out) if replay.out.startswith("{") else {}
            compared, unknown = (report.get(key, "-") for key in ("bytes_compared", "bytes_unknown"))
            name = " ".join([what, *options[1:]])
            text = describe(snapshots(cutape, trace))
            print(f"{name:24} {record.status:>6} {replay.status:>6} {compared:>11} {unknown:>10}  {text}", flush=True)
            # Memory is read a little later where a thread stays in a call. The others compare nothing.
            is_known = {"middle": unknown == 0, "toggled": unknown < compared}.get(what, True)
            is_right &= record.status == 0 and replay.status == 0 and (is_known or not options)
            if record.status != 0 or replay.status != 0:
                print(record.err[-500:], replay.out[-1500:], replay.err[-500:])
    return is_right


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[3:] or ["exact", "kept"]
    parts = {"exact": exact, "kept": kept}
    is_right = [parts[word](package / "cutape", results) for word in wanted]
    return 0 if all(is_right) else 1


if __name__ == "__main__":
    sys.exit(main())
