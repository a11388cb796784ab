"""Records and replays programs beside busy loops. Prints how often memory was natural: where the
recording has it, by the driver itself. The exit status is 1 if a replay diverges or fails.
"""

import collections
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from real import OF_THE_MOMENT, PROGRAMS, command
from run import busy_loops, machine

RECORDINGS = int(os.environ.get("N", "4"))
REPLAYS = int(os.environ.get("R", "2"))
LIMIT = float(os.environ.get("LIMIT", "480"))
LOAD = int(os.environ.get("LOAD", os.cpu_count() or 1))
AT_ONCE = int(os.environ.get("AT_ONCE", "1"))
SLOWED = int(os.environ.get("SLOWED", "0"))
# A slowed replay is stopped and continued for random times: in this many seconds it runs this long.
TURN, SHARE = 0.05, 0.1
# A process that is started just before the limit may last that long.
LONGEST = 150
PROGRAMS_OF = ["flax_training", "jax_grad", "torch_graph"]
# Where flax is not installed.
INSTEAD = {"flax_training": "jax_training"}
COLUMNS = [
    "recorded", "replayed", "natural", "first", "attempts", "granules", "elsewhere", "divergences", "put", "slowed", "same", "failed",
    "record s", "replay s", "slowed s",
]
# Lines of the log that say what was placed and why.
PLACED = ("mapped before call", "instead of", "is taken", "placed elsewhere")
# Functions that can make the driver reserve addresses, for misplaced.jsonl.
RESERVING = (
    "cuInit", "cuDevicePrimaryCtxRetain", "cuCtxCreate", "cuModuleLoad", "cuModuleGet", "cuLibrary",
    "cuKernelGetFunction", "cuMemAlloc", "cuMemHostAlloc", "cuMemAddress", "cuMemCreate", "cuMemHostRegister", "cuMemPool",
)


class Stopped(Exception):
    """No time is left."""


class Runner:
    """Starts processes until the time is over, and ends them with it."""

    def __init__(self):
        self.end = time.monotonic() + LIMIT
        self.lock, self.running, self.is_stopped = threading.Lock(), set(), False

    def left(self):
        return self.end - time.monotonic()

    def run(self, words, is_slowed=False):
        """Status (None: cut off), stdout, stderr, seconds."""
        with self.lock:
            if self.is_stopped or self.left() <= 0:
                raise Stopped
            started = time.monotonic()
            # A group of its own: a replay has a child, a recorded program may have some.
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
            self.running.add(process)
        if is_slowed:
            threading.Thread(target=slow, args=[process], daemon=True).start()
        try:
            out, err = process.communicate(timeout=LONGEST * (3 if is_slowed else 1))
            status = process.returncode
        except subprocess.TimeoutExpired:
            kill(process)
            (out, err), status = process.communicate(), None
        finally:
            with self.lock:
                self.running.discard(process)
        if self.is_stopped:
            raise Stopped
        return status, out, err.decode(errors="replace"), time.monotonic() - started

    def stop(self):
        self.is_stopped = True
        # Not under the lock: a signal may interrupt the thread that has it.
        for process in list(self.running):
            kill(process)


def kill(process, number=signal.SIGKILL):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def slow(process):
    """Stops and continues a process and its children for random times until it has ended."""
    while process.poll() is None:
        time.sleep(random.uniform(0, 2 * TURN * SHARE))
        kill(process, signal.SIGSTOP)
        time.sleep(random.uniform(0, 2 * TURN * (1 - SHARE)))
        kill(process, signal.SIGCONT)


def essence(report):
    """What must not depend on how fast a replay is."""
    return {key: value for key, value in report.items() if key not in OF_THE_MOMENT}


class Program:
    """One program's recordings and replays."""

    def __init__(self, name, words, cutape, results, runner, notes):
        self.name, self.words, self.cutape, self.results = name, words, cutape, results
        self.runner, self.notes, self.reports = runner, notes, {}
        # Outcome of the program bare; seconds of recordings; replays, and those that were slowed.
        self.bare, self.recordings, self.replays, self.slowed, self.problems = None, [], [], [], []

    def work(self):
        try:
            # Twice: the first run compiles and caches.
            for _ in range(2):
                status, out, err, _ = self.runner.run(self.words)
                self.bare = out
                if status != 0:
                    self.problems.append(f"bare: status {status}: {err.strip()[-200:]}")
                    return
        except Stopped:
            self.problems.append("stopped by the limit")
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for problem in pool.map(self.try_record, range(1, RECORDINGS + 1)):
                if problem and problem not in self.problems:
                    self.problems.append(problem)

    def try_record(self, number):
        try:
            self.record(number)
        except Stopped:
            return "stopped by the limit"
        except Exception as error:  # The table has to be printed with what the others found.
            return f"{type(error).__name__}: {error}"

    def record(self, number):
        trace = self.results / f"{self.name}.{number}.cutape"
        status, out, err, seconds = self.runner.run([self.cutape, "record", "-o", trace, "--", *self.words])
        if status != 0 or not trace.exists():
            self.problems.append(f"recording {number}: status {status}: {err.strip()[-200:]}")
        if not trace.exists():
            return
        if out != self.bare:
            self.problems.append(f"recording {number}: another output than bare")
        self.recordings.append(seconds)
        is_noted = False
        for again in range(1, REPLAYS + 1):
            is_noted |= self.replay(trace, number, again)
        for again in range(REPLAYS + 1, REPLAYS + 1 + (number <= SLOWED)):
            is_noted |= self.replay(trace, number, again, is_slowed=True)
        if is_noted:
            self.notes.maps(self, trace, number)
        trace.unlink()

    def replay(self, trace, number, again, is_slowed=False):
        """Whether something about it has to be kept."""
        file = self.results / f"{self.name}.{number}.{again}.json"
        words = [self.cutape, "--log", "debug", "replay", "--keep-going", "--report", file, trace]
        status, _, err, seconds = self.runner.run(words, is_slowed)
        label = f"{self.name} {number}.{again}{' slowed' if is_slowed else ''}"
        rows = self.slowed if is_slowed else self.replays
        if not file.exists():
            self.problems.append(f"{label}: status {status}: {err.strip()[-200:]}")
            rows.append(None)
            print(f"{label}: no report", flush=True)
            return False
        report = json.loads(file.read_text())
        file.unlink()
        placed = report["placed"]
        row = {
            "program": self.name, "recording": number, "replay": again, "strategy": placed["strategy"],
            "placed": [placed["at_recorded_address"], placed["allocations"]], "attempts": report["attempts"] + 1,
            "elsewhere": len(report["translated"]), "divergences": report["divergence_count"],
            "died": (report["died"] or {}).get("text"), "misplaced": report.get("misplaced", []),
            "replay s": seconds, "put": len(report.get("put_during_waits", [])),
        }
        rows.append(row)
        self.compare(label, row, essence(report))
        print(
            f"{label}: {row['strategy']}, attempt {row['attempts']}, {row['elsewhere']} elsewhere, "
            f"{row['divergences']} divergences, {seconds:.1f} s", flush=True,
        )
        if report["divergence_count"]:
            first = report["divergences"][0]
            self.problems.append(f"{label}: call {first['call']} {first['function']}: expected {first['expected']}, received {first['received']}"[:250])
        if row["died"]:
            self.problems.append(f"{label}: {row['died']}")
        is_noted = row["attempts"] > 1 or row["strategy"] != "natural" or row["elsewhere"] > 0
        log = [line for line in err.splitlines() if any(words in line for words in PLACED)] if is_noted else []
        self.notes.put({**row, "log": log, "translated": report["translated"][:20]})
        return is_noted

    def compare(self, label, row, report):
        """Notes whether a report says the same as the first of its recording that placed memory so."""
        key = row["recording"], row["strategy"], row["elsewhere"]
        first = self.reports.setdefault(key, report)
        differing = [name for name in first if first[name] != report.get(name)]
        row["same"] = not differing
        if differing:
            shown = ", ".join(f"{name}: {str(first[name])[:80]} / {str(report.get(name))[:80]}" for name in differing)
            self.problems.append(f"{label}: other report: {shown}"[:400])

    def cells(self):
        done, slowed = ([row for row in rows if row] for rows in (self.replays, self.slowed))
        natural = [row for row in done if row["strategy"] == "natural" and row["elsewhere"] == 0]
        total = len(self.replays)
        # How many replays took so many attempts.
        tries = collections.Counter(row["attempts"] for row in done)
        # By recording: all of its replays were natural.
        traces = sorted({row["recording"] for row in done})
        whole = [trace for trace in traces if all(row in natural for row in done if row["recording"] == trace)]
        mean = lambda values: f"{sum(values) / len(values):.1f}" if values else "-"
        return {
            "recorded": len(self.recordings), "replayed": total, "natural": f"{len(natural)}/{total}",
            "first": f"{sum(row['attempts'] == 1 for row in natural)}/{total}",
            "attempts": " ".join(f"{count}x{tries}" for tries, count in sorted(tries.items())) or "-",
            "granules": sum(row["strategy"] == "granules" for row in done),
            "elsewhere": sum(row["elsewhere"] for row in done), "divergences": sum(row["divergences"] for row in done + slowed),
            "put": sum(row["put"] for row in done), "slowed": f"{len(slowed)}/{len(self.slowed)}",
            "same": f"{sum(row['same'] for row in done + slowed)}/{len(done + slowed)}",
            "failed": total - len(done) + sum(bool(row["died"]) for row in done + slowed),
            "record s": mean(self.recordings), "replay s": mean([row["replay s"] for row in done]),
            "slowed s": mean([row["replay s"] for row in slowed]),
        }, f"{len(whole)}/{len(traces)}"


class Notes:
    """What is kept of replays, one JSON object a line."""

    def __init__(self, path):
        self.lock, self.file = threading.Lock(), gzip.open(path, "wt")

    def put(self, value):
        with self.lock:
            self.file.write(json.dumps(value) + "\n")

    def maps(self, program, trace, number):
        """The calls of a trace that note or change the address space."""
        status, out, _, _ = program.runner.run([program.cutape, "dump", "--format", "json", trace])
        calls = []
        for line in out.decode(errors="replace").splitlines() if status == 0 else []:
            if '"address_space"' not in line and not any(f'"function":"{name}' in line for name in RESERVING):
                continue
            call = json.loads(line)
            spaces = [note["mapped"] for note in call["notes"] if note["kind"] == "address_space"]
            arguments = {name: value.get("value") for name, value in call["arguments"].items()}
            outputs = {name: value.get("value") for name, value in call["outputs"].items()}
            calls.append([call["call"], call["thread"], call["function"], call["time_ns"], call["duration_ns"], arguments, outputs, spaces])
        self.put({"program": program.name, "recording": number, "calls": calls})


def chosen(names, results):
    """Names and commands; why others cannot be run here."""
    programs, missing = [], []
    for name in names or PROGRAMS_OF:
        words, why = command(PROGRAMS / f"{name}.py", results)
        if words is None and name in INSTEAD:
            missing.append(f"{name}: {why}; {INSTEAD[name]} instead")
            name = INSTEAD[name]
            words, why = command(PROGRAMS / f"{name}.py", results)
        if words is None:
            missing.append(f"{name}: skipped: {why}")
        else:
            programs.append((name, words))
    return programs, missing


def table(programs, missing):
    width = max([len(program.name) for program in programs] + [7])
    lines = [f"{'program':{width}}  " + "  ".join(f"{column:>11}" for column in COLUMNS)]
    natural = {}
    for program in programs:
        cells, natural[program.name] = program.cells()
        lines.append(f"{program.name:{width}}  " + "  ".join(f"{str(cells[column]):>11}" for column in COLUMNS))
    lines += ["", "recordings of which every replay was natural: " + ", ".join(f"{name} {count}" for name, count in natural.items())]
    lines += missing + [f"{program.name}: {problem}" for program in programs for problem in program.problems]
    return "\n".join(lines)


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    os.environ["NO_COLOR"] = "1"
    # Else the first process of JAX takes three quarters of the device's memory from the others.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found, missing = chosen(sys.argv[3:], results)
    runner = Runner()
    notes = Notes(results / "misplaced.jsonl.gz")
    programs = [Program(name, words, package / "cutape", results, runner, notes) for name, words in found]

    def stop(*_):
        runner.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    described = machine(package / "cutape", results, package / "programs")
    busy = busy_loops(LOAD, LIMIT + LONGEST)
    try:
        # One program beside the other: each has one process on the device at a time.
        workers = [threading.Thread(target=program.work, daemon=True) for program in programs]
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                worker.join(0.2)
    finally:
        for process in busy:
            process.kill()
        notes.file.close()
    text = f"{time.strftime('%Y-%m-%d')}\n\n{described}\nN={RECORDINGS} R={REPLAYS} LIMIT={LIMIT:.0f} LOAD={LOAD} AT_ONCE={AT_ONCE} SLOWED={SLOWED} ({os.cpu_count()} cores)\n\n{table(programs, missing)}\n"
    (results / "placement.txt").write_text(text)
    print(text)
    is_right = lambda row: row and not row["divergences"] and not row["died"]
    return 0 if all(program.replays and all(map(is_right, program.replays + program.slowed)) for program in programs) else 1


if __name__ == "__main__":
    sys.exit(main())
