"""`pytest --cutape-check`: this process prints, another one runs the tests under `cutape record`.

This process collects and runs nothing. It hands on what the recorded one reports, as the first
process of pytest-xdist does, so that the terminal, JUnit files and other plugins see the tests. It
holds back the report of each test's teardown until the recording is complete and checked, and
attaches findings to it. So it also reports a test in which the driver ends the process.
"""

import glob
import json
import os
import tempfile
import time

import pytest

from cutape import _program, _pytest_process
from cutape._pytest_findings import Checked, FindingsRepr, calls_in_flight
from cutape.pytest_plugin import words

OUTSIDE = "cutape::outside-of-tests"


def configure(config):
    _pytest_process.check_options(config, "--cutape-check")
    # The recorded process has the workers of pytest-xdist.
    if config.getoption("tx", None):
        _pytest_process.use_no_workers(config)
    config.pluginmanager.register(Controller(config), "cutape-check")


class Test:
    """A test that the recorded process has begun."""

    def __init__(self, location, begin):
        self.location = tuple(location)
        self.begin = begin
        self.end = None
        self.has_called = False
        # Reports that wait for findings.
        self.held = []


class Controller:
    def __init__(self, config):
        self.config = config
        self.tests = {}
        self.collected = 0
        self.failed = ""
        self.interrupted = None
        self.internal_error = None
        self.has_ended = False
        self.checked = None
        self.kept = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session):
        session.items = []
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        folder = self.config.getoption("cutape_trace_dir")
        with tempfile.TemporaryDirectory(prefix="cutape-pytest-") as temporary:
            if folder:
                os.makedirs(folder, exist_ok=True)
            trace = free_name(folder or temporary)
            status = self.run_tests(session, trace)
            traces = sorted(glob.glob(glob.escape(trace[: -len(".cutape")]) + "*.cutape"))
            self.kept = traces if folder else []
            self.check(status, traces)
        if self.internal_error is not None:
            pytest.exit(f"internal error in the recorded process:\n{self.internal_error}", 3)
        if self.interrupted is not None:
            raise session.Interrupted(self.interrupted)
        if self.failed:
            raise session.Failed(self.failed)
        return True

    def run_tests(self, session, trace):
        """Runs the recorded process and hands on what it reports; gives its status."""
        command = ["record", "-o", trace, *self.record_options(), "--"]
        told = {"arguments": [str(word) for word in self.config.invocation_params.args]}
        return _pytest_process.run(
            self.config, command, told, lambda said: self.take(session, said)
        )

    def record_options(self):
        given = words(self.config, "cutape_record_args")
        names = {word.split("=")[0] for word in given}
        options = []
        if "--stacks" not in names:
            options.append("--stacks")
        # The check needs no copied bytes. A recording that is kept should replay.
        if not self.config.getoption("cutape_trace_dir"):
            options += [
                f"{name}=none" for name in ("--payloads", "--outputs") if name not in names
            ]
        return options + given

    def take(self, session, said):
        """Hands on an event of the recorded process."""
        hook = self.config.hook
        event = said["event"]
        if event == "collected":
            self.collected = said["tests"]
            session.testscollected = said["tests"]
            self.print_collected(said)
        elif event == "start":
            self.tests[said["test"]] = Test(said["location"], said["time"])
            hook.pytest_runtest_logstart(nodeid=said["test"], location=tuple(said["location"]))
        elif event == "finish":
            self.tests[said["test"]].end = said["time"]
            hook.pytest_runtest_logfinish(nodeid=said["test"], location=tuple(said["location"]))
        elif event == "report":
            self.take_report(_pytest_process.report_of(self.config, said))
        elif event == "collect-report":
            report = _pytest_process.report_of(self.config, said)
            hook.pytest_collectreport(report=report)
        elif event == "warning":
            _pytest_process.record_warning(self.config, said)
        elif event == "interrupted":
            self.interrupted = said["why"]
        elif event == "internal-error":
            self.internal_error = said["why"]
        elif event == "end":
            self.has_ended = True
            self.failed = said["failed"]

    def take_report(self, report):
        test = self.tests.get(report.nodeid)
        if test is not None and report.when == "teardown":
            test.held.append(report)
            return
        if test is not None and report.when == "call":
            test.has_called = True
        self.config.hook.pytest_runtest_logreport(report=report)

    def print_collected(self, said):
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or self.config.getoption("verbose") < 0:
            return
        total = said["tests"] + said["deselected"]
        text = f"collected {total} item{'' if total == 1 else 's'}"
        if said["deselected"]:
            text += f" / {said['deselected']} deselected / {said['tests']} selected"
            terminal.stats.setdefault("deselected", []).extend([None] * said["deselected"])
        terminal.write_line(f"{text}, recorded by cutape", bold=True)

    def check(self, status, traces):
        """Checks the recording, and reports each test's teardown with its findings."""
        self.checked = Checked(self.config, self.tests)
        for trace in traces:
            self.checked.check(trace)
        for nodeid, test in self.tests.items():
            found = self.checked.of_test.get(nodeid, [])
            if test.end is None:
                if self.interrupted is not None and status <= 128 and not found:
                    # pytest reports no test that was interrupted.
                    continue
                if self.has_ended:
                    # Its worker of pytest-xdist ended, and pytest-xdist has reported that.
                    for report in test.held:
                        self.config.hook.pytest_runtest_logreport(report=report)
                    if found:
                        self.report_error(nodeid, test.location, FindingsRepr(found))
                    continue
                found = [*found, *calls_in_flight(traces)]
                self.report_unfinished(nodeid, test, found, status)
                continue
            for report in test.held:
                if found and report is test.held[-1]:
                    attach(report, FindingsRepr(found))
                self.config.hook.pytest_runtest_logreport(report=report)
        outside = list(self.checked.outside)
        is_interrupted = self.interrupted is not None or self.internal_error is not None
        if self.has_ended or all(test.end for test in self.tests.values()) and not is_interrupted:
            if status > 128 or not self.has_ended:
                outside.append(f"The recorded process {_pytest_process.ending(status)} outside of a test.")
        if outside:
            location = (OUTSIDE.split("::")[0], None, OUTSIDE.split("::")[1])
            self.report_error(OUTSIDE, location, FindingsRepr(outside))

    def report_unfinished(self, nodeid, test, found, status):
        """Reports a test in which the recorded process ended."""
        for report in test.held:
            self.config.hook.pytest_runtest_logreport(report=report)
        left = self.collected - len(self.tests)
        why = f"The process {_pytest_process.ending(status)} in this test."
        if left > 0:
            why += f" {left} test{'s' if left > 1 else ''} after it did not run."
        report = pytest.TestReport(
            nodeid=nodeid,
            location=test.location,
            keywords={},
            outcome="failed",
            longrepr=FindingsRepr([why, *found]),
            when="teardown" if test.has_called else "call",
            duration=max(0, time.time_ns() - test.begin) / 1e9,
        )
        self.config.hook.pytest_runtest_logreport(report=report)
        if not test.has_called:
            # JUnit files take a test as complete when its teardown is reported.
            report = pytest.TestReport(
                nodeid=nodeid, location=test.location, keywords={}, outcome="passed",
                longrepr=None, when="teardown",
            )
            self.config.hook.pytest_runtest_logreport(report=report)

    def report_error(self, nodeid, location, longrepr):
        report = pytest.TestReport(
            nodeid=nodeid,
            location=location,
            keywords={},
            outcome="failed",
            longrepr=longrepr,
            when="teardown",
        )
        self.config.hook.pytest_runtest_logreport(report=report)

    def pytest_terminal_summary(self, terminalreporter):
        if self.checked is None:
            return
        terminalreporter.section("cutape", sep="=")
        for line in self.checked.summary():
            terminalreporter.line(line)
        for trace in self.kept:
            terminalreporter.line(f"recording: {trace}")


def attach(report, findings):
    """Makes the report of a teardown one of findings."""
    if report.passed:
        report.outcome = "failed"
        report.longrepr = findings
    else:
        report.sections.append(("cutape check", str(findings)))


def free_name(folder):
    """The path of a recording that does not exist yet."""
    number = 0
    while True:
        name = f"pytest-{number}" if number else "pytest"
        if not glob.glob(glob.escape(os.path.join(folder, name)) + "[.]*cutape"):
            return os.path.join(folder, f"{name}.cutape")
        number += 1
