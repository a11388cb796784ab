"""Measures the cost of recording, in turn with the bare program and with other tools: medians over
rounds, and ratios.
"""

import glob
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "bench"
LIMIT = 120
ROUNDS = 3
# Half of the processors of the largest machine that this was written for.
THREADS = 16


def first(*patterns):
    """The first file that one of the patterns finds."""
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            return path
    return None


def packages():
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def find_cupti():
    wheels = [f"{path}/nvidia/{part}/lib/libcupti.so*" for path in packages() for part in ("cu13", "cuda_cupti")]
    return first(*wheels, "/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*", "/usr/local/cuda*/lib64/libcupti.so*", "/usr/lib/x86_64-linux-gnu/libcupti.so*")


def find_sanitizer():
    return shutil.which("compute-sanitizer") or first(
        "/usr/local/cuda*/bin/compute-sanitizer", *(f"{path}/nvidia/*/bin/compute-sanitizer" for path in packages())
    )


class Bench:
    def __init__(self, package, results):
        self.cutape = package / "cutape"
        self.programs = package / "bench"
        self.figures = {}
        self.skipped = []
        self.traces = Path(tempfile.mkdtemp(prefix="bench-"))
        self.cupti = find_cupti()
        self.sanitizer = find_sanitizer()
        injected = self.programs / "cupti_callbacks.so"
        self.ways = {"bare": ([], {}), "recorded": (self.cutape, {})}
        if "CUTAPE_BEFORE" in os.environ:
            self.ways["before"] = (Path(os.environ["CUTAPE_BEFORE"]).resolve() / "cutape", {})
        if self.cupti and injected.exists():
            self.ways["CUPTI"] = ([], {"CUDA_INJECTION64_PATH": str(injected), "CUPTI_LIBRARY": self.cupti})
        else:
            self.skipped.append("CUPTI callbacks: no libcupti found" if not self.cupti else f"CUPTI callbacks: no {injected}")
        if self.sanitizer:
            self.ways["Sanitizer"] = ([self.sanitizer, "--tool", "memcheck"], {})
        else:
            self.skipped.append("Compute Sanitizer: not found")

    def run(self, way, command):
        """The figures that a program prints; {} and a line in `skipped` if it fails."""
        wrapper, settings = self.ways[way]
        trace = self.traces / "trace.cutape"
        if way in ("recorded", "before"):
            wrapper = [wrapper, "record", "--no-pack", "-o", trace, "--"]
        environment = {**os.environ, **settings, "BENCH_STARTED": str(time.time())}
        line = [str(word) for word in [*wrapper, *command]]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, env=environment)
        except subprocess.TimeoutExpired:
            self.skipped.append(f"{way} {' '.join(map(str, command[-3:]))}: more than {LIMIT} s")
            return {}
        finally:
            for left in self.traces.iterdir():
                size = left.stat().st_size
                left.unlink()
                self.last_trace = size
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            self.skipped.append(f"{way} {' '.join(map(str, command[-3:]))}: status {done.returncode}: {said[-1] if said else ''}")
            return {}
        words = (text.split() for text in done.stdout.splitlines())
        return {pair[0]: float(pair[1]) for pair in words if len(pair) == 2 and pair[1].replace(".", "").replace("-", "").isdigit()}

    def measure(self, command, ways=None, rounds=ROUNDS, prefix=""):
        """All cases in turn, so that changes on the machine affect all of them."""
        for _ in range(rounds):
            for way in ways or self.ways:
                if way not in self.ways:
                    continue
                words = command(way) if callable(command) else command
                for name, value in self.run(way, words).items():
                    self.figures.setdefault(prefix + name, {}).setdefault(way, []).append(value)

    def median(self, name, way):
        values = self.figures.get(name, {}).get(way)
        return statistics.median(values) if values else None

    def table(self):
        clock = self.median("clock_read_ns", "bare") or 0
        ways = list(self.ways)
        rows = [["", *ways, "recorded/bare", "added", "added, less two clock reads"]]
        for name in self.figures:
            values = [self.median(name, way) for way in ways]
            bare, recorded = self.median(name, "bare"), self.median(name, "recorded")
            ratio = added = less = ""
            if bare and recorded is not None:
                ratio = f"{recorded / bare:.3f}"
                added = f"{recorded - bare:.2f}"
                if name.endswith("_ns") and not name.startswith("clock"):
                    less = f"{recorded - bare - 2 * clock:.2f}"
            rows.append([name, *("" if value is None else f"{value:g}" for value in values), ratio, added, less])
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]
        return "\n".join(lines)


def machine():
    """Processor and GPU, for the head of a table; never the host's name."""
    with open("/proc/cpuinfo") as cpu:
        model = next((line.split(":", 1)[1].strip() for line in cpu if line.startswith("model name")), "unknown processor")
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()[:1]
    except (OSError, subprocess.TimeoutExpired):
        gpu = []
    return f"{model}, {os.cpu_count()} processors, {gpu[0] if gpu else 'no GPU found'}, Linux {os.uname().release}"


def main():
    package, results, *parts = sys.argv[1:]
    package, results = Path(package).resolve(), Path(results).resolve()
    results.mkdir(parents=True, exist_ok=True)
    bench = Bench(package, results)
    program = bench.programs / "call_cost"
    if not program.exists():
        sys.exit(f"bench.py: {program} is missing; make the package with `cargo xtask package`")
    quick = [way for way in bench.ways if way != "Sanitizer"]
    known = {
        "calls": lambda: (
            bench.measure([program, "calls", 100000, 20000], quick),
            bench.measure([program, "pinned", 20000, 5000], quick),
            # Ten times slower, so a tenth of the calls.
            bench.measure([program, "calls", 10000, 1000], ["Sanitizer"], 1),
        ),
        # The driver's own launches vary by more than recording adds.
        "cold": lambda: bench.measure([program, "cold", 20000], ["bare", "recorded", "before", "CUPTI"]),
        "threads": lambda: [bench.measure([program, "threads", count, 100000], ["bare", "recorded", "before"], 2) for count in (1, THREADS)],
        # The machine beside a writer needs to be measured once only.
        "tail": lambda: bench.measure(
            lambda way: [program, "tail", 10000000, *([bench.traces] if way == "bare" else [])], ["bare", "recorded", "before"], 2
        ),
        "upload": lambda: (
            bench.measure([program, "upload", 256, 8, bench.traces], ["bare", "recorded", "before"], 2),
            recording_alone(bench),
        ),
        "torch": lambda: torch_steps(bench),
    }
    started = time.monotonic()
    for part in parts or known:
        if part not in known:
            sys.exit(f"bench.py: no part {part}: {', '.join(known)}")
        known[part]()
    shutil.rmtree(bench.traces)
    head = f"{time.strftime('%Y-%m-%d')}, {machine()}\nmedians of {ROUNDS} rounds in turn; {time.monotonic() - started:.0f} s in all\n"
    text = head + "\n" + bench.table() + "\n" + "".join(f"skipped: {line}\n" for line in bench.skipped)
    (results / "bench.txt").write_text(text)
    (results / "bench.json").write_text(json.dumps({"machine": machine(), "figures": bench.figures, "skipped": bench.skipped}, indent=1))
    print(text, end="")


def recording_alone(bench):
    """How fast the bytes of an upload are recorded: by the time that recording adds to the upload."""
    uploads = bench.figures.get("upload_mib_s", {})
    for way in ("recorded", "before"):
        pairs = zip(uploads.get("bare", []), uploads.get(way, []))
        rates = [1 / (1 / recorded - 1 / bare) for bare, recorded in pairs if 0 < recorded < bare]
        if rates:
            bench.figures.setdefault("upload_recording_mib_s", {})[way] = rates


def torch_steps(bench):
    if importlib.util.find_spec("torch") is None:
        bench.skipped.append("torch: Python has no torch")
        return
    command = [sys.executable, PROGRAMS / "torch_steps.py"]
    # Once beforehand, because the first run reads files from disk.
    bench.run("bare", [*command, "10"])
    bench.measure([*command, "300"], [way for way in bench.ways if way != "Sanitizer"], prefix="torch_")


if __name__ == "__main__":
    main()
