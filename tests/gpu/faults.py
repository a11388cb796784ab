"""Faults of the system while a program is recorded on a real driver. Prints a table; the exit status is 1 if a row is
not as expected.
"""

import glob
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

COUNTED_CALLS = ("cuCtxSynchronize", "cuMemcpyHtoD_v2")
ERRORS = [
    ("open:24:0:1", "nothing"), ("fallocate:28:12:1000000", "start"), ("fallocate:95:0:1000000", "all"),
    ("pwrite:4:0:20", "all"), ("pwritev:4:0:20", "all"), ("pwritev:-1:0:1000000", "all"), ("pwritev:5:20:1", "start"),
    ("mmap:12:1:1000000", "start"),
]


def counted(file):
    """How many calls of each thread have returned, as the program has counted them."""
    pairs = (struct.unpack_from("<QQ", bytes(count)) for count in zip(*[iter(file.read_bytes())] * 64))
    return {thread: returned for thread, returned in pairs if thread}


def recorded(cutape, trace):
    """How many of these calls of each thread are in the trace and have returned."""
    numbers, counts = {}, {}
    dump = subprocess.run([cutape, "dump", "--format", "json", trace], capture_output=True, text=True, check=True).stdout
    for call in map(json.loads, dump.splitlines()):
        if "function" not in call:
            continue
        for note in call["notes"]:
            if note["kind"] == "thread":
                numbers[call["thread"]] = note["number"]
        if call["function"] in COUNTED_CALLS and call["result"]:
            counts[call["thread"]] = counts.get(call["thread"], 0) + 1
    return {numbers[thread]: count for thread, count in counts.items() if thread in numbers}


class Machine:
    def __init__(self, package, results):
        self.cutape, self.results = package / "cutape", results
        self.counted, self.shim = package / "faults" / "counted", package / "faults" / "shim.so"
        driver = os.environ.get("DRIVER")
        self.options = ["--no-pack"] + (["--driver", driver] if driver else [])

    def record(self, trace, words, **variables):
        trace.unlink(missing_ok=True)
        command = [self.cutape, "record", *self.options, "-o", trace, "--", *words]
        return subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )

    def kills(self, threads, count):
        """Kills the program and the recorder; returns how many traces had all calls."""
        trace, file, whole = self.results / f"killed{threads}.cutape", self.results / "counts", 0
        for _ in range(count):
            file.unlink(missing_ok=True)
            process = self.record(trace, [self.counted, file, str(threads)])
            while not (file.exists() and counted(file)) and process.poll() is None:
                time.sleep(0.001)
            time.sleep(random.uniform(0, 0.05))
            os.killpg(process.pid, 9)
            process.communicate()
            time.sleep(0.05)
            returned, found = counted(file), recorded(self.cutape, trace)
            lost = {t: (n, found.get(t, 0)) for t, n in returned.items() if not n <= found.get(t, 0) <= n + 1}
            whole += not lost
            if lost:
                print(f"{threads} threads: {lost} (thread: returned, recorded)", flush=True)
                shutil.copy(trace, self.results / f"lost{threads}.cutape")
        return f"{whole} of {count} whole", whole == count

    def fails(self, fault, kept):
        trace = self.results / "fails.cutape"
        process = self.record(trace, [self.counted, self.results / "counts", "1", "9000"], LD_PRELOAD=str(self.shim), FAULT=fault)
        out, lines = process.communicate()
        calls = sum(recorded(self.cutape, trace).values()) if trace.exists() else 0
        right = {"all": calls == 9000 and not lines, "start": calls < 9000 and lines, "nothing": not trace.exists() and lines}[kept]
        return f"{calls} calls, {len(lines.splitlines())} lines", process.returncode == 0 and out == "EXIT-SUCCESS\n" and bool(right)

    def allocator(self, name):
        found = glob.glob(f"/usr/lib/x86_64-linux-gnu/{name}") + glob.glob(f"/usr/lib64/{name}")
        if not found:
            return "not installed", True
        trace = self.results / "allocator.cutape"
        process = self.record(trace, [self.counted, self.results / "counts", "2", "500"], LD_PRELOAD=found[0])
        out, lines = process.communicate()
        calls = sum(recorded(self.cutape, trace).values()) if trace.exists() else 0
        return f"{calls} calls", calls == 1000 and not lines and out == "EXIT-SUCCESS\n"

    def late(self):
        trace, file = self.results / "late.cutape", self.results / "counts"
        script = '(sleep 2; "$0" "$1" 1 500) >/dev/null 2>&1 & exit 0'
        process = self.record(trace, ["sh", "-c", script, self.counted, file])
        lines = process.communicate()[1]
        time.sleep(6)
        calls = sum(recorded(self.cutape, trace).values()) if trace.exists() else 0
        return f"{calls} calls", calls == 500 and "still runs and will be recorded" in lines


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    results.mkdir(parents=True, exist_ok=True)
    machine = Machine(package, results)
    rows = [("killed, 1 thread", *machine.kills(1, count)), ("killed, 16 threads", *machine.kills(16, count))]
    rows += [(f"{fault} ({kept} kept)", *machine.fails(fault, kept)) for fault, kept in ERRORS]
    rows += [(name, *machine.allocator(name)) for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")]
    rows.append(("starts after record has ended", *machine.late()))
    lines = [f"{what:38} {found:30} {'as expected' if right else 'WRONG'}" for what, found, right in rows]
    (results / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    sys.exit(not all(right for *_, right in rows))


main()
