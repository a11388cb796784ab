"""Records programs whose work hangs or fails, and asks `hang PID` from outside what it is.

Each is asked twice: with a breadcrumb after each launch, which leaves one candidate, and with the
default. The exit status is 1 if something else is named.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from run import Ended

DRIVER = os.environ.get("DRIVER")
SPIN = Path(__file__).resolve().parent / "programs" / "hang_spin.py"
WAITED = 60
# Name, stream, what is among its candidates, the function of the program whose line is named. Then
# what the stream waits for, a circle, an error.
CASES = [
    ("kernel", "stream#1", "spin", "in_kernel", {}),
    ("value", "stream#1", "cuStreamWaitValue32", "value_never_comes", {"waits": "value"}),
    ("each-other", "stream#1", "cuStreamWaitValue32", "each_other", {"waits": "value", "cycle": 2}),
    ("graph-fault", "stream#1", "cuGraphLaunch", "fault_in_graph", {"fails": True, "node": "fault"}),
    ("stream-fault", "stream#1", "fault", "fault_in_stream", {"fails": True}),
    ("collective", "stream#1", "all_reduce", "collective", {}),
    ("python", "stream#1", "spin", "training_step", {}),
    ("event", "stream#2", "cuStreamWaitEvent", "event_never_comes", {"waits": "event"}),
    ("legacy", "the legacy default stream", "spin", "legacy", {}),
    ("callback", "stream#1", "cuLaunchHostFunc", "callback", {"waits": "host_function"}),
]
# Where launches run no code, streams wait for a value where kernels would spin.
NULL = {"spin": "cuStreamWaitValue32", "all_reduce": "cuStreamWaitValue32"}


def child_of(process):
    """The program that `record` has started."""
    path = Path(f"/proc/{process}/task/{process}/children")
    return int(path.read_text().split()[0])


class Hanging:
    """A recorded program that hangs, until it is killed."""

    def __init__(self, package, results, name, options, variables=None):
        self.log = results / f"{name}.log"
        trace = results / f"{name}.cutape"
        trace.unlink(missing_ok=True)
        program = [sys.executable, SPIN] if name == "python" else [package / "hangs", name]
        driver = ["--driver", DRIVER] if DRIVER else []
        environment = os.environ | (variables or {})
        if name == "callback":
            environment["CUTAPE_NULL_SCHEDULE"] = "lazy"
        self.recorder = subprocess.Popen(
            [package / "cutape", "record", *driver, *options, "--no-pack", "-o", trace, "--", *program],
            stdin=subprocess.PIPE, stdout=self.log.open("w"), stderr=subprocess.STDOUT, env=environment,
        )
        begun = time.monotonic()
        while "HANGS" not in self.log.read_text():
            if time.monotonic() - begun > WAITED or self.recorder.poll() is not None:
                break
            time.sleep(0.02)
        # The program is then about to wait.
        time.sleep(0.5)
        self.program = child_of(self.recorder.pid)

    def end(self):
        try:
            os.kill(self.program, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.recorder.wait()


def judged(report, case):
    """What is wrong in a report; the candidates of the stream."""
    name, stream, wanted, function, more = case
    wanted = NULL.get(wanted, wanted) if DRIVER == "null" else wanted
    found = [entry for entry in report["streams"] if entry["name"] == stream]
    if not found:
        return ["stream"], 0
    lines = found[0]["candidates"]
    count = len(lines) + found[0]["more_candidates"]
    lines = [line for line in lines if wanted in (line["kernel"], line["text"].split("(")[0])]
    wrong = [] if lines else ["work"]
    if not any(re.search(rf":\d+ in \S*{function}\b", line["place"] or "") for line in lines):
        wrong.append("line")
    waits = [wait["kind"] for wait in found[0]["waits"]]
    if "waits" in more and more["waits"] not in waits:
        wrong.append("wait")
    if len(report["cycle"]) != more.get("cycle", 0):
        wrong.append("circle")
    if bool(report["failure"]) != more.get("fails", False):
        wrong.append("failure")
    nodes = [node["kernel"] for line in lines for node in line["nodes"]]
    if "node" in more and more["node"] not in nodes:
        wrong.append("node")
    return wrong, count


def asked(package, results, case, options):
    """A row: what is wrong, candidates, seconds."""
    hanging = None
    try:
        hanging = Hanging(package, results, case[0], [*options, "--stacks=all"])
        said = Ended([package / "cutape", "hang", "--watch", "0.3", "--format", "json", str(hanging.program)])
        text = Ended([package / "cutape", "hang", "--watch", "0", str(hanging.program)])
        (results / f"{case[0]}{options[0]}.txt").write_bytes(text.out + text.err)
        (results / f"{case[0]}{options[0]}.json").write_bytes(said.out)
        wrong, count = judged(json.loads(said.out), case)
        return wrong, count, said.seconds
    except (ValueError, IndexError, OSError) as error:
        return [f"{type(error).__name__}: {error}"], 0, 0.0
    finally:
        if hanging:
            hanging.end()


def cost(package, results, options):
    """Nanoseconds of an empty launch."""
    driver = ["--driver", DRIVER] if DRIVER else []
    trace = results / "cost.cutape"
    recorded = [package / "cutape", "record", *driver, *options, "--no-pack", "-o", trace, "--"]
    command = ([] if options is NOT_RECORDED else recorded) + [package / "hangs", "cost"]
    trace.unlink(missing_ok=True)
    said = Ended(command, stdin=subprocess.DEVNULL)
    found = re.search(rb"ns a launch: (\d+)", said.out)
    return int(found[1]) if found else None


def core_dump(package, results):
    """What becomes of a core dump on request."""
    variables = {
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_PIPE": str(results / "pipe.%p"),
        "CUDA_COREDUMP_FILE": str(results / "core.%p"),
    }
    hanging = Hanging(package, results, "kernel", ["--breadcrumbs"], variables)
    try:
        said = Ended([package / "cutape", "hang", "--watch", "0", "--core", str(hanging.program)])
        (results / "core-on-request.txt").write_bytes(said.out + said.err)
        dumps = sorted(results.glob("core.*"))
        named = all(dump.name.encode() in said.out for dump in dumps) and bool(dumps)
        runs = re.search(rb"on device \d+: spin, grid \(1, 1, 1\).*; launched by call \d+", said.out)
        sizes = [dump.stat().st_size for dump in dumps]
        for dump in dumps:
            dump.unlink()
        line = f"named {named}, bytes {sizes}, {said.seconds:.1f} s, {said.message()}"
        return bool(runs), f"{line}, {runs[0].decode() if runs else 'kernel not named'}"
    finally:
        hanging.end()


def core_dump_of_fault(package, results):
    """What `hang` reads in the dump that the driver writes when a kernel faults."""
    trace = results / "core-of-fault.cutape"
    trace.unlink(missing_ok=True)
    environment = os.environ | {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1",
        "CUDA_COREDUMP_FILE": str(results / "fault.%p"),
    }
    # The driver ends the program when it has written the dump.
    subprocess.run(
        [package / "cutape", "record", "--breadcrumbs=1", "--stacks=all", "-o", trace, "--",
         package / "hangs", "stream-fault"],
        stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=300,
    )
    text = Ended([package / "cutape", "hang", trace])
    (results / "core-of-fault.txt").write_bytes(text.out + text.err)
    report = json.loads(Ended([package / "cutape", "hang", "--format", "json", trace]).out)
    faults = [fault for dump in report["core_dump_contents"] for fault in dump["faults"]]
    unreadable = [dump["unreadable"] for dump in report["core_dump_contents"] if dump["unreadable"]]
    for dump in map(Path, report["core_dumps"]):
        # The debugger's own words, to compare with.
        if shutil.which("cuda-gdb"):
            commands = [f"target cudacore {dump}", "info cuda kernels", "info cuda exception"]
            words = [word for command in commands for word in ("-ex", command)]
            said = Ended(["cuda-gdb", "-batch", *words])
            (results / "core-of-fault.gdb.txt").write_bytes(said.out + said.err)
    zero = {"block": [0, 0, 0], "thread": [0, 0, 0]}
    right = [
        fault for fault in faults
        if fault["kernel"] == "fault" and fault["calls"] and fault["thread"] in (zero, None)
    ]
    return bool(right), f"{len(report['core_dumps'])} files, unreadable {unreadable}, {faults}"


NOT_RECORDED = ["not recorded"]


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    rows, wrong = [], 0
    for case in CASES:
        if sys.argv[3:] and case[0] not in sys.argv[3:]:
            continue
        if DRIVER == "null" and (case[4].get("fails") or case[0] == "python"):
            continue
        exact = asked(package, results, case, ["--breadcrumbs=1"])
        default = asked(package, results, case, ["--breadcrumbs"])
        wrong += bool(exact[0] or default[0])
        rows.append((case[0], exact, default))
    dumps = {}
    if not DRIVER:
        for what, function in [("on request", core_dump), ("of a fault", core_dump_of_fault)]:
            is_right, dumps[what] = function(package, results)
            wrong += not is_right
    costs = {}
    ways = [[], ["--breadcrumbs"], ["--breadcrumbs=4"], ["--breadcrumbs=1"]]
    for _ in range(7):
        for options in ways if DRIVER else [NOT_RECORDED, *ways]:
            costs.setdefault(" ".join(options) or "recorded", []).append(cost(package, results, options))
    print(f"{'hang':14} {'every 1':24} {'of':>3} {'s':>6}   {'every 16':24} {'of':>3} {'s':>6}")
    for name, *both in rows:
        words = [f"{', '.join(bad) or 'right':24} {count:3} {seconds:6.2f}" for bad, count, seconds in both]
        print(f"{name:14} {'   '.join(words)}")
    print(f"right: {len(rows) + len(dumps) - wrong} of {len(rows) + len(dumps)}")
    for what, said in dumps.items():
        print(f"core dump {what}: {said}")
    for options, found in costs.items():
        print(f"ns of an empty launch, {options}: {median(found)} {sorted(found)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
