"""A second pytest under `cutape record` or `cutape play`, and what it reports."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from cutape import _program
from cutape.pytest_plugin import SECOND_PROCESS

# The search path comes first: the process may not find pytest without it.
START = f"""
import json, os, sys
told = json.loads(os.environ[{SECOND_PROCESS!r}])
sys.path[:] = told["path"]
sys.argv[:] = told["argv"]
import pytest
sys.exit(pytest.main(told["arguments"]))
"""
POLL_SECONDS = 0.05


def check_options(config, name):
    """Refuses what a second process would not do, for the option `name`."""
    option = config.getoption
    for other, is_set in [
        ("--pdb", option("usepdb", False) or option("trace", False)),
        ("--cov", option("cov_source", None) and not option("no_cov", False)),
        ("--forked", option("forked", False)),
    ]:
        if is_set:
            raise pytest.UsageError(
                f"{name} does not work with {other}: it runs the tests in a process of its own; "
                "leave one of the two out"
            )
    try:
        _program.path()
    except FileNotFoundError as error:
        raise pytest.UsageError(f"{name}: {error}") from None


def use_no_workers(config):
    """Makes this process one without workers of pytest-xdist."""
    config.option.dist = "no"
    config.option.tx = []
    config.option.numprocesses = None


def run(config, command, told, take, stderr=None):
    """Runs pytest under a verb of `cutape` with its options; gives the status.

    `told` has the `arguments` of pytest, and what else `_pytest_recorded` is to know. `take` gets
    each event, a dictionary.
    """
    reading, writing = os.pipe()
    told = {**told, "pipe": writing, "path": sys.path, "argv": sys.argv}
    command = [_program.path(), *command]
    command += [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", START]
    environment = {**os.environ, SECOND_PROCESS: json.dumps(told)}
    # Its output is not this process's: pytest would capture it here.
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    process = subprocess.Popen(command, env=environment, pass_fds=[writing], stderr=stderr)
    os.close(writing)
    events = Events(process, reading)
    try:
        while events.take(take):
            pass
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        if capture is not None:
            capture.resume_global_capture()
    return process.returncode


class Events:
    """What a process reports."""

    def __init__(self, process, pipe):
        self.process = process
        self.lines = queue.SimpleQueue()
        self.reader = threading.Thread(target=read_lines, args=(pipe, self.lines), daemon=True)
        self.reader.start()
        self.is_interrupted = False

    def take(self, take):
        """Hands on what the process has reported; false when it has ended."""
        try:
            is_running = self.process.poll() is None
            if not is_running:
                # A process that a test left behind may still have the other end of the pipe.
                self.reader.join(timeout=1)
            while True:
                line = self.lines.get(timeout=POLL_SECONDS if is_running else 0)
                take(json.loads(line))
        except queue.Empty:
            return is_running
        except KeyboardInterrupt:
            # The terminal has interrupted the process too.
            if self.is_interrupted:
                raise
            self.is_interrupted = True
            take({"event": "interrupted", "why": "KeyboardInterrupt"})
            return True


def read_lines(pipe, lines):
    with os.fdopen(pipe, encoding="utf-8") as file:
        for line in file:
            # A process that is killed may leave its last line unfinished.
            if line.endswith("\n"):
                lines.put(line)


def report_of(config, said):
    """The report in an event."""
    report = config.hook.pytest_report_from_serializable(config=config, data=said["report"])
    # JSON makes lists of tuples.
    for name in ("location", "longrepr"):
        if isinstance(getattr(report, name, None), list):
            setattr(report, name, tuple(getattr(report, name)))
    for name in ("sections", "user_properties"):
        if hasattr(report, name):
            setattr(report, name, [tuple(one) for one in getattr(report, name)])
    return report


def record_warning(config, said):
    """Hands on a warning."""
    module, name = said["category"]
    category = getattr(sys.modules.get(module), name, None)
    is_category = isinstance(category, type) and issubclass(category, Warning)
    message = warnings.WarningMessage(
        said["message"], category if is_category else Warning, said["filename"], said["lineno"]
    )
    location = tuple(said["location"]) if said["location"] else None
    config.hook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "when": said["when"],
            "nodeid": said["test"],
            "location": location,
        }
    )


def ending(status):
    """How a process ended, from the status of `cutape record` or `cutape play`."""
    if status <= 128:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(status - 128).name}"
    except ValueError:
        return f"ended with status {status}"
