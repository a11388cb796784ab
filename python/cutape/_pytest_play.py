"""`pytest --cutape-play`: each test runs in a process of its own, on the recording of its calls.

This process, or each worker of pytest-xdist, only collects; what it runs of a test is a second
pytest under `cutape play`, or under `cutape record` if the test has no recording, whose reports it
hands on.
"""

import ctypes
import glob
import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import urllib.parse

import pytest

from cutape import _program, _pytest_process
from cutape._pytest_findings import FindingsRepr, info
from cutape.pytest_plugin import words

# A file's name has at most 255 bytes, and a file that is being moved has a longer one.
LONGEST_NAME = 200
NODE_ID = pytest.StashKey()


def configure(config):
    _pytest_process.check_options(config, "--cutape-play")
    mode = config.getoption("cutape_play_mode")
    if mode == "none" or not has_driver():
        load_null_driver()
    config.pluginmanager.register(Player(config, mode), "cutape-play")


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def load_null_driver():
    """Makes it the libcuda of this process: modules of tests may call the driver when imported."""
    checked = _program.run("doctor", "--driver", "null", "--format", "json")
    try:
        checks = json.loads(checked.stdout)["checks"]
    except ValueError:
        raise pytest.UsageError(f"--cutape-play: {checked.stderr.strip()}") from None
    for check in checks:
        if check["check"] == "null-driver" and check["status"] == "ok":
            ctypes.CDLL(check["text"], mode=ctypes.RTLD_GLOBAL)


class Player:
    def __init__(self, config, mode):
        self.config = config
        self.mode = mode
        self.folder = os.path.join(config.rootpath, config.getoption("cutape_play"))
        # A worker of pytest-xdist has no command line.
        worker = getattr(config, "workerinput", None)
        own = [str(word) for word in config.invocation_params.args]
        self.arguments = own if worker is None else worker["cutape_arguments"]
        self.count = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["cutape_arguments"] = self.arguments

    def pytest_report_header(self):
        return f"cutape: each test plays its recording in {self.folder} (mode {self.mode})"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        # pytest-xdist adds a test's group to its id.
        for item in items:
            item.stash[NODE_ID] = item.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        run = self.run(item)
        for warning in run.warnings:
            _pytest_process.record_warning(self.config, warning)
        for report in run.reports:
            report.nodeid = item.nodeid
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def run(self, item):
        """Runs a test as the mode says."""
        trace = os.path.join(self.folder, file_name(item.stash[NODE_ID]))
        if not os.path.exists(trace) or self.mode == "all":
            return self.record(item, trace)[0]
        played, is_same = self.play(item, trace)
        if is_same or self.mode != "new":
            return played
        recorded, is_kept = self.record(item, trace)
        return recorded if is_kept else played

    def play(self, item, trace):
        """Runs a test on its recording; and whether its calls are the recorded ones."""
        with tempfile.TemporaryDirectory(prefix="cutape-play-") as folder:
            report = os.path.join(folder, "report.json")
            options = ["--report", report, *words(self.config, "cutape_play_args")]
            run = self.start(item, ["play", *options, trace, "--"])
            try:
                with open(report, encoding="utf-8") as file:
                    found = json.load(file)
            except FileNotFoundError:
                again = self.how_to_record(item, "all")
                why = f"{self.shown(trace)} cannot be played. To record it again:\n  {again}"
                run.fail(f"{why}\n{run.stderr.strip()}")
                return run, True
        texts = [mismatch["text"] for mismatch in found["mismatches"]]
        if found["ended_early"]:
            texts.append(found["ended_early"])
        if not texts:
            run.fail_unless_finished()
            return run, True
        again = self.how_to_record(item, "new")
        texts += [f"The recording is {self.shown(trace)}. To record the test again:", f"  {again}"]
        run.fail("\n".join(["The test's driver calls are not the recorded ones.", *texts]))
        return run, False

    def record(self, item, trace):
        """Runs a test and keeps its calls, if the mode and the driver are right for that."""
        given = words(self.config, "cutape_record_args")
        options = ["--stacks", "--cassette", *given]
        if self.mode == "none":
            options = ["--driver", "null", "--payloads=none", "--outputs=none"]
        with tempfile.TemporaryDirectory(prefix="cutape-play-") as folder:
            made = os.path.join(folder, "test.cutape")
            run = self.start(item, ["record", "-o", made, *options, "--"])
            run.fail_unless_finished()
            traces = glob.glob(os.path.join(folder, "*.cutape"))
            if not traces:
                return run, False
            names_driver = any(word.split("=")[0] == "--driver" for word in given)
            if self.mode == "none" or not (names_driver or is_of_gpu(traces[0])):
                # What the test did with the null driver says nothing.
                run.reports.clear()
                run.fail(self.without_recording(item, trace))
                return run, False
            if len(traces) > 1:
                run.fail(
                    f"{len(traces)} processes of this test call the driver, and a test is played "
                    "in one: no recording is kept."
                )
            if run.has_failed():
                return run, False
            keep(traces[0], trace)
            return run, True

    def without_recording(self, item, trace):
        if self.mode != "none":
            return (
                "This test calls the CUDA driver, which this machine does not have: "
                f"{self.shown(trace)} was not recorded."
            )
        why = f"This test calls the CUDA driver and has no recording: {self.shown(trace)}."
        return f"{why} Record it on a machine with a GPU:\n  {self.how_to_record(item, 'once')}"

    def how_to_record(self, item, mode):
        folder = self.config.getoption("cutape_play")
        command = ["pytest", "--cutape-play", folder, "--cutape-play-mode", mode]
        return shlex.join([*command, item.stash[NODE_ID]])

    def shown(self, trace):
        return os.path.relpath(trace, self.config.rootpath)

    def start(self, item, command):
        """Runs a test in a process of its own."""
        self.count += 1
        told = {
            "arguments": self.arguments,
            "test": item.stash[NODE_ID],
            "file": str(item.path),
            "basetemp": self.temporary_folder(),
        }
        run = Run(self.config, item)
        with tempfile.TemporaryFile("w+", errors="replace") as stderr:
            run.status = _pytest_process.run(self.config, command, told, run.take, stderr)
            stderr.seek(0)
            run.stderr = stderr.read()
        if self.config.getoption("capture") == "no":
            sys.stderr.write(run.stderr)
        run.end()
        return run

    def temporary_folder(self):
        """What `--basetemp` is for a test's process, which deletes it first."""
        base = self.config.option.basetemp
        if base is None:
            return None
        os.makedirs(base, exist_ok=True)
        return os.path.join(base, f"test-{self.count}")


class Run:
    """What the process of a test has reported."""

    def __init__(self, config, item):
        self.config = config
        self.item = item
        self.reports = []
        self.warnings = []
        # Why the test was not collected.
        self.errors = []
        self.has_started = False
        self.has_finished = False
        self.interrupted = None
        self.status = None
        self.stderr = ""

    def take(self, said):
        event = said["event"]
        if event == "start":
            self.has_started = True
        elif event == "finish":
            self.has_finished = True
        elif event == "report":
            self.reports.append(_pytest_process.report_of(self.config, said))
        elif event == "collect-report":
            report = _pytest_process.report_of(self.config, said)
            if report.failed:
                self.errors.append(report.longreprtext)
        elif event == "warning" and said["when"] == "runtest":
            self.warnings.append(said)
        elif event == "interrupted":
            self.interrupted = said["why"]
        elif event == "internal-error":
            self.errors.append(said["why"])

    def end(self):
        if self.interrupted == "KeyboardInterrupt":
            raise KeyboardInterrupt
        if self.interrupted is not None and not self.errors:
            pytest.exit(self.interrupted)
        for report in self.reports:
            if report.failed and self.stderr.strip():
                report.sections.append(("stderr of the test's process", self.stderr))

    def has_failed(self):
        return any(report.failed for report in self.reports)

    def fail_unless_finished(self):
        if self.has_finished:
            return
        if self.has_started:
            why = f"The process {_pytest_process.ending(self.status)} in this test."
        elif self.errors:
            why = "\n".join(["The test's process did not collect it.", *self.errors])
        else:
            why = "The test's process has no test of this name; does it depend on the devices?"
        self.fail("\n".join([why, self.stderr]).strip())

    def fail(self, why):
        """Makes the test one that failed, unless it has: then its report has this too."""
        run = [report for report in self.reports if report.when != "teardown"]
        for report in run:
            if report.failed:
                report.sections.append(("cutape", why))
                return
        if run and self.has_finished:
            report = run[-1]
            report.outcome = "failed"
            report.longrepr = FindingsRepr([why])
            # Not one that was expected to fail.
            vars(report).pop("wasxfail", None)
            return
        # A failure in setup is an error of pytest, one of the call a failed test.
        self.reports = [report for report in self.reports if report.when == "setup"]
        for when, outcome, longrepr in [
            ("call", "failed", FindingsRepr([why])),
            ("teardown", "passed", None),
        ]:
            self.reports.append(
                pytest.TestReport(
                    nodeid=self.item.nodeid, location=self.item.location, keywords={},
                    outcome=outcome, longrepr=longrepr, when=when,
                )
            )


def file_name(nodeid):
    """The file of a test's recording: as `tests/test_a/TestB.test_c[1-x].cutape`."""
    path, _, name = nodeid.partition("::")
    folders = [quoted(part) for part in path.removesuffix(".py").split("/")]
    name = quoted(name.replace("::", "."))
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return os.path.join(*folders, f"{name}.cutape")


def quoted(name):
    """A name without what file systems, shells and artifacts of GitHub do not take."""
    name = urllib.parse.quote(name, safe="[],=+@", errors="backslashreplace")
    return name.replace("..", "%2E%2E")


def is_of_gpu(trace):
    """Whether a recording is one of a driver that runs kernels."""
    facts = info(trace)
    return facts is not None and facts["machine"]["driver_kind"] != "null"


def keep(made, trace):
    """Puts a recording in its place; an older one is there until then."""
    os.makedirs(os.path.dirname(trace), exist_ok=True)
    partial = f"{trace}.{os.getpid()}"
    shutil.move(made, partial)
    os.replace(partial, trace)
