"""Runs the test programs on real hardware: bare, recorded, checked, checked live, replayed.

Prints a table. The header of a program states the expected result (tests/programs/README.md). The
exit status is 1 if a result differs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "programs"
TIMEOUT = 120
# How often a violation is recorded and checked: each time with the same findings.
REPEATS = int(os.environ.get("REPEATS", "1"))
# Recorded and checked only, that often: no run without cutape, no replay.
ONLY_CHECKED = bool(os.environ.get("ONLY_CHECKED"))
# More options of `record`, such as --breadcrumbs=1.
RECORD_OPTIONS = os.environ.get("RECORD_OPTIONS", "").split()
# Many programs at a time, because most of a run is the start of the driver.
AT_ONCE = min(15, os.cpu_count() or 1)
# Advice about calls that take long, which they may where many programs run at a time.
BY_THE_CLOCK = {"performance-jit-at-run-time"}


# The rules that `check` knows. A program may break one that is not implemented; then no finding is
# expected.
RULES = {
    rule["id"]
    for path in (ROOT / "registry" / "rules").glob("*.toml")
    for rule in tomllib.loads(path.read_text())["rule"]
    if not rule.get("undecidable")
}


class Ended:
    """The result of a process: output, messages, status (negative: the signal)."""

    def __init__(self, command, **options):
        started = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, **options)
            self.out, self.err, self.status = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            self.out, self.err, self.status = late.stdout or b"", late.stderr or b"", "timeout"
        self.seconds = time.monotonic() - started

    def message(self):
        return self.err.decode(errors="replace").strip()


def busy_loops(count, seconds):
    """Processes that do nothing but keep cores busy. They end by themselves if this one is killed."""
    loop = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
    return [subprocess.Popen([sys.executable, "-c", loop, str(seconds)]) for _ in range(count)]


def header(source):
    """The expectations in the comment lines of a source."""
    said = {"expect": [], "may": [], "crashes": [], "may-crash": [], "needs": []}
    text = re.sub(r"\A/\*.*?\*/\n", "", source.read_text(), flags=re.DOTALL)
    for line in text.splitlines():
        found = re.match(r"// (expect|may|crashes|may-crash|needs): (.*)", line)
        if found:
            said[found[1]] += [found[2]] if found[1] == "needs" else found[2].split()
        elif not line.startswith("//"):
            break
    return said


def traces_in(folder):
    """The traces of a recording: first that of the program, then those of processes that it started."""
    return sorted(folder.glob("*.cutape"), key=lambda trace: (trace.name != "recorded.cutape", trace.name))


def devices():
    """How many GPUs the machine has; one if it does not say."""
    if not shutil.which("nvidia-smi"):
        return 1
    return Ended(["nvidia-smi", "--list-gpus"]).out.count(b"GPU ")


class Row:
    def __init__(self, name, package, results):
        self.name = name
        self.program = package / "programs" / name
        self.cutape = package / "cutape"
        self.results = results
        # A process that the program starts leaves a trace of its own.
        self.folder = results / "traces" / name
        self.trace = self.folder / "recorded.cutape"
        group, stem = name.split(".")[:2]
        self.violates = name.endswith(".violate") or group == "demo"
        said = header(SOURCES / group / f"{stem}.c")
        self.expected = set(said["expect"]) & RULES if self.violates else set()
        self.unchecked = set(said["expect"]) - RULES if self.violates else set()
        self.allowed = self.expected | set(said["may"]) | BY_THE_CLOCK
        self.devices = 2 if any(need.startswith("two GPUs") for need in said["needs"]) else 1
        # Programs that fill the device's memory run alone.
        self.alone = any("memory" in need for need in said["needs"])
        self.must_crash = bool(said["crashes"]) and self.violates
        self.may_crash = self.must_crash or (bool(said["may-crash"]) and self.violates)
        self.problems = []
        self.cells = {}

    def problem(self, text):
        self.problems.append(text)

    def log(self, kind, ended):
        path = self.results / "logs" / f"{self.name}.{kind}"
        path.write_bytes(ended.out + b"\n--- stderr\n" + ended.err + f"\n--- status {ended.status}\n".encode())

    def run(self):
        """All of it; a line for when the time is limited."""
        if ONLY_CHECKED:
            if self.violates:
                self.checked_again()
        else:
            self.run_once()
        print(self.line(), flush=True)
        return self

    def line(self):
        cells = [f"{str(self.cells.get(column, '-')):>11}" for column in COLUMNS]
        return "  ".join([f"{self.name:58}"] + cells) + ("  !" if self.problems else "")

    def run_once(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.bare_and_recorded()
        traces = traces_in(self.folder)
        self.checked(traces)
        for self.trace in traces:
            self.replayed()
        if not traces:
            self.problem("no trace")

    def bare_and_recorded(self):
        bare = Ended([self.program])
        record = [self.cutape, "record", *RECORD_OPTIONS, "-o", self.trace, "--", self.program]
        recorded = Ended(record)
        self.log("bare", bare)
        self.log("recorded", recorded)
        crashed = isinstance(bare.status, int) and bare.status < 0
        status = 128 - bare.status if crashed else bare.status
        self.cells["bare"] = f"signal {-bare.status}" if crashed else str(bare.status)
        if crashed and not self.may_crash:
            self.problem(f"bare run ended by signal {-bare.status}")
        if not crashed and bare.status != 0 and not self.violates:
            self.problem(f"bare run: status {bare.status}: {bare.message()[:100]}")
        same = bare.out == recorded.out and status == recorded.status
        self.cells["recorded"] = "same" if same else "differs"
        # Undefined behaviour may differ between runs.
        if not same and not self.violates:
            self.problem(f"recorded run differs: status {recorded.status}, {recorded.message()[:100]}")
        if not self.violates and (bare.err or recorded.err):
            self.problem(f"stderr: {(bare.message() or recorded.message())[:100]}")

    def checked(self, traces):
        # Findings go to a file, because stdout has the output of the program.
        report = self.results / "logs" / f"{self.name}.findings"
        commands = {"check": [[trace] for trace in traces]}
        if self.may_crash or self.name.startswith("demo") or self.name.startswith("clean.t"):
            commands["live"] = [["--", self.program]]
        for way, inputs in commands.items():
            found = self.findings(way, Path(f"{report}.{way}.json"), inputs)
            if found is None:
                continue
            self.cells[way] = "exact" if found == self.expected else ("allowed" if self.expected <= found <= self.allowed else "WRONG")
            if not self.expected <= found <= self.allowed:
                self.problem(f"{way} found {sorted(found)}, expected {sorted(self.expected)}")
        if self.violates:
            self.checked_again()
        for trace in traces[:1]:
            info = Ended([self.cutape, "info", "--format", "json", trace])
            try:
                self.info = json.loads(info.out)
            except ValueError:
                self.problem(f"info: {info.message()[:150]}")

    def findings(self, way, report, inputs):
        """The rules that `check` finds violated; `None` if it does not say."""
        found = set()
        for words in inputs:
            report.unlink(missing_ok=True)
            ended = Ended([self.cutape, "check", "--format", "json", "--report", report, *words])
            self.log(way, ended)
            try:
                found |= {finding["rule"] for finding in json.loads(report.read_text())["findings"]}
            except (OSError, ValueError, KeyError):
                self.problem(f"{way}: {ended.message()[:150]}")
                return None
        return found

    def checked_again(self):
        """Further recordings of a violation: memory that was freed holds something else each time."""
        right = int(self.cells.get("check") in ("exact", "allowed"))
        first = 0 if ONLY_CHECKED else 1
        folder = self.results / "traces" / f"{self.name}.again"
        for number in range(first, REPEATS):
            folder.mkdir()
            Ended([self.cutape, "record", "-o", folder / "recorded.cutape", "--", self.program])
            report = self.results / "logs" / f"{self.name}.again.json"
            found = self.findings("again", report, [[trace] for trace in traces_in(folder)])
            if found is not None and self.expected <= found <= self.allowed:
                right += 1
            else:
                self.problem(f"recording {number + 1}: found {sorted(found or [])}, expected {sorted(self.expected)}")
            shutil.rmtree(folder)
        self.cells["times"] = f"{right}/{REPEATS}"

    def replay(self, kind, *options):
        """The report of a replay, if it ends with one, and how it ended."""
        report = self.results / "logs" / f"{self.name}.{kind}.json"
        ended = Ended([self.cutape, "replay", "--keep-going", "--report", report, *options, self.trace])
        self.log(kind, ended)
        try:
            return json.loads(report.read_text()), ended
        except (OSError, ValueError):
            return None, ended

    def replayed(self):
        got, ended = self.replay("replay")
        if got is None:
            self.problem(f"replay: status {ended.status}: {ended.message()[:200]}")
            return
        placed = got["placed"]
        self.cells["calls"] = got["calls"]
        self.cells["replayed"] = got["calls_replayed"] + sum(got["calls_emulated"].values())
        self.cells["skipped"] = sum(skipped["count"] for skipped in got["skipped"])
        self.cells["divergences"] = got["divergence_count"]
        self.cells["placed"] = f"{placed['at_recorded_address']}/{placed['allocations']}"
        self.cells["strategy"], self.cells["elsewhere"] = placed["strategy"], len(got["translated"])
        self.cells["bytes"] = got["bytes_compared"]
        self.skipped = [f"{entry['function']}: {entry['reason']}" for entry in got["skipped"]]
        if got["died"]:
            self.problem(f"replay {got['died']['text']}")
        if self.violates:
            return
        # How many ranges would lie elsewhere without natural placement.
        other, _ = self.replay("granules", "--placement", "granules")
        self.cells["granules"] = "-" if other is None else len(other["translated"])
        if got["divergence_count"]:
            first = got["divergences"][0]
            self.problem(f"call {first['call']} {first['function']} {first['what']}: expected {first['expected']}, received {first['received']}"[:200])
        if placed["at_recorded_address"] != placed["allocations"]:
            self.problem(f"{placed['allocations'] - placed['at_recorded_address']} allocations not at their address")


def machine(cutape, results, programs):
    """Driver and GPU, from a trace."""
    trace = results / "machine.cutape"
    Ended([cutape, "record", "-o", trace, "--", programs / "clean.init_device"])
    said = Ended([cutape, "info", trace]).out.decode(errors="replace").splitlines()
    trace.unlink(missing_ok=True)
    return "\n".join(line for line in said if line.startswith(("driver ", "GPU ", "recorder "))) + "\n"


COLUMNS = ["bare", "recorded", "check", "times", "live", "calls", "replayed", "skipped", "divergences", "placed", "strategy", "elsewhere", "granules", "bytes"]
HEADER = "  ".join([f"{'program':58}"] + [f"{column:>11}" for column in COLUMNS])


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    for folder in ("traces", "logs"):
        (results / folder).mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in (package / "programs").iterdir())
    if sys.argv[3:]:
        names = [name for name in names if any(word in name for word in sys.argv[3:])]
    started = time.monotonic()
    rows, present = [Row(name, package, results) for name in names], devices()
    left_out = [row.name for row in rows if row.devices > present]
    rows = [row for row in rows if row.devices <= present]
    print(HEADER)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(Row.run, [row for row in rows if not row.alone]))
    for row in rows:
        if row.alone:
            row.run()
    lines = [HEADER, *(row.line() for row in rows)]
    reasons = {}
    for row in rows:
        for reason in getattr(row, "skipped", []):
            reasons.setdefault(reason, []).append(row.name)
    lines.append("")
    lines.append("not re-issued:")
    lines += [f"  {reason} ({len(where)} programs)" for reason, where in sorted(reasons.items())] or ["  nothing"]
    unchecked = sorted({rule for row in rows for rule in row.unchecked})
    lines.append("need more GPUs: " + (", ".join(left_out) or "none"))
    lines.append("rules that nothing checks: " + (", ".join(unchecked) or "none"))
    wrong = [row for row in rows if row.problems]
    lines.append("")
    lines += [f"{row.name}: {problem}" for row in wrong for problem in row.problems]
    lines.append(f"{len(rows) - len(wrong)} passed, {len(wrong)} failed, in {time.monotonic() - started:.0f} s")
    table = "\n".join(lines) + "\n"
    described = machine(package / "cutape", results, package / "programs")
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{described}\n{table}")
    print("\n".join(["", *lines[len(rows) + 1:]]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
