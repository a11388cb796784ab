"""In a process under `cutape`: runs the tests, and tells the first process how they end.

With `--cutape-check`, each test is a range in the trace, with the test's id as its name. With
pytest-xdist, this process hands the tests to workers, which are recorded like all its children.
With `--cutape-play`, there is one test.
"""

import ctypes
import json
import os
import time

import pytest
from _pytest.config import create_terminal_writer

from cutape import _pytest_process


def configure(config, told):
    told = told and json.loads(told)
    if told and "test" in told:
        select_test(config, told)
    elif not uses_xdist(config):
        config.pluginmanager.register(Ranges(), "cutape-ranges")
    if told is None:
        # A worker of pytest-xdist in a recorded run. The process that started it reports.
        return
    pipe = told["pipe"]
    os.set_inheritable(pipe, False)
    if uses_xdist(config):
        config.option.xmlpath = None
    else:
        # What a worker of pytest-xdist has. pytest and its plugins then leave what belongs to a
        # whole run, such as JUnit files and the cache of failures, to the other process.
        config.workerinput = {"workerid": "gw0", "workercount": 1, "testrunuid": "cutape"}
    config.pluginmanager.register(Recorded(config, os.fdopen(pipe, "w")), "cutape-recorded")


def select_test(config, told):
    """Collects one test, whatever the command line names."""
    _pytest_process.use_no_workers(config)
    config.args = [told["file"]]
    if hasattr(config.option, "pyargs"):
        config.option.pyargs = False
    config.option.basetemp = told["basetemp"]
    config.pluginmanager.register(Selection(told["test"]), "cutape-selection")


class Selection:
    """Leaves one of the tests that are collected."""

    def __init__(self, test):
        self.test = test

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid == self.test]


def uses_xdist(config):
    """Whether other processes run the tests."""
    return bool(config.getoption("tx", None)) and not hasattr(config, "workerinput")


def recorder_function(name):
    """A function of the recorder that takes text or nothing."""
    # With the backend gum, the recorder is not libcuda but a library of the process.
    for library in ("libcuda.so.1", None):
        try:
            return getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError):
            pass
    return lambda *_: None


class Ranges:
    """Makes each test a range of the recording."""

    def pytest_sessionstart(self):
        self.push = recorder_function("cutape_range_push")
        self.pop = recorder_function("cutape_range_pop")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.push(item.nodeid.encode(errors="backslashreplace"))
        yield
        self.pop()


class Recorded:
    """Sends what pytest reports, as lines of JSON."""

    def __init__(self, config, pipe):
        self.config = config
        self.pipe = pipe
        self.deselected = 0
        self.has_collected = False

    def send(self, event, **members):
        members.update(event=event, time=time.time_ns())
        try:
            self.pipe.write(json.dumps(members) + "\n")
            self.pipe.flush()
        except OSError:
            # The other process has ended; nothing more is wanted.
            pass

    def send_report(self, event, report):
        # The worker of pytest-xdist that it comes from cannot be sent.
        node = vars(report).pop("node", None)
        hook = self.config.hook.pytest_report_to_serializable
        self.send(event, report=hook(config=self.config, report=report))
        if node is not None:
            report.node = node

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self):
        # The other process prints what happens.
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            nowhere = open(os.devnull, "w")
            reporter._tw = create_terminal_writer(self.config, nowhere)

    def pytest_deselected(self, items):
        self.deselected += len(items)

    def pytest_collectreport(self, report):
        if not report.passed:
            self.send_report("collect-report", report)

    def pytest_collection_finish(self, session):
        self.has_collected = True
        self.send("collected", tests=len(session.items), deselected=self.deselected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        # Every worker collects the same tests.
        if not self.has_collected:
            self.has_collected = True
            self.send("collected", tests=len(ids), deselected=0)

    def pytest_runtest_logstart(self, nodeid, location):
        self.send("start", test=nodeid, location=location)

    def pytest_runtest_logreport(self, report):
        self.send_report("report", report)

    def pytest_runtest_logfinish(self, nodeid, location):
        self.send("finish", test=nodeid, location=location)

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        category = warning_message.category
        self.send(
            "warning",
            category=[category.__module__, category.__qualname__],
            message=str(warning_message.message),
            filename=warning_message.filename,
            lineno=warning_message.lineno,
            when=when,
            test=nodeid,
            location=location,
        )

    def pytest_keyboard_interrupt(self, excinfo):
        self.send("interrupted", why=str(excinfo.value) or excinfo.typename)

    def pytest_internalerror(self, excrepr):
        self.send("internal-error", why=str(excrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        self.send("end", failed=session.shouldfail or "")

