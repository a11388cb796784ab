"""The pytest plugin of cutape: `--cutape-check`, `--cutape-play`, and the marker `cutape_replay`.

pytest loads this module in every run, so it imports little. `_pytest_check` runs a recorded pytest
and reports its findings, `_pytest_play` runs each test on its recording, `_pytest_recorded` is in
the processes that they start, `_pytest_replay` replays traces.
"""

import os
import shlex

import pytest

MARKER = "cutape_replay(trace, *, args=()): replay a recording as part of the test, and fail with \
the divergences; `args` are further options of `cutape replay`"

# How a process that runs tests for another one knows that, and what it is to run.
SECOND_PROCESS = "CUTAPE_PYTEST"


def pytest_addoption(parser):
    group = parser.getgroup("cutape", "CUDA driver calls (cutape)")
    group.addoption(
        "--cutape-check",
        action="store_true",
        help="record the CUDA driver calls of the tests and look for misuse: a finding is an "
        "error of the test that made the call",
    )
    group.addoption(
        "--cutape-fail-on",
        choices=["error", "warning", "advice", "never"],
        default="warning",
        metavar="LEVEL",
        help="the least severity of a finding that fails its test: error, warning, advice or "
        "never (default: %(default)s). Others are listed at the end",
    )
    group.addoption(
        "--cutape-trace-dir",
        metavar="DIR",
        help="keep the recordings in this folder. Default: they are deleted",
    )
    group.addoption(
        "--cutape-suppress",
        metavar="FILE",
        help="leave out findings that this file lists: see `cutape check --help`",
    )
    group.addoption(
        "--cutape-baseline",
        metavar="FILE",
        help="leave out findings that an earlier `cutape check --format json` contains",
    )
    group.addoption(
        "--cutape-play",
        metavar="FOLDER",
        help="run each test in a process of its own, without a GPU, on the recording of its driver "
        "calls in this folder (from pytest's root)",
    )
    group.addoption(
        "--cutape-play-mode",
        choices=["none", "once", "new", "all"],
        default="none",
        metavar="MODE",
        help="which tests record their driver calls on this machine's driver: none (the default), "
        "once: those that have no recording, new: also those whose calls differ from it, or all",
    )
    for verb, example in [
        ("record", "--driver null"),
        ("check", "--expect-errors"),
        ("replay", "--repeat 3"),
        ("play", "--unset step.unset"),
    ]:
        group.addoption(
            f"--cutape-{verb}-args",
            default="",
            metavar="ARGS",
            help=f"further options of `cutape {verb}`, in one word: "
            f"--cutape-{verb}-args='{example}'",
        )


def words(config, name):
    """The words of an option that passes options on."""
    try:
        return shlex.split(config.getoption(name))
    except ValueError as error:
        option = "--" + name.replace("_", "-")
        raise pytest.UsageError(f"{option}: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.addinivalue_line("markers", MARKER)
    for verb in ("record", "check", "replay"):
        words(config, f"cutape_{verb}_args")
    checks, plays = config.getoption("cutape_check"), config.getoption("cutape_play")
    if only_looks(config) or not (checks or plays):
        return
    if checks and plays:
        raise pytest.UsageError("--cutape-check does not work with --cutape-play; leave one out")
    told = os.environ.pop(SECOND_PROCESS, None)
    if told is not None or (checks and hasattr(config, "workerinput")):
        from cutape import _pytest_recorded

        _pytest_recorded.configure(config, told)
    elif checks:
        from cutape import _pytest_check

        _pytest_check.configure(config)
    else:
        from cutape import _pytest_play

        _pytest_play.configure(config)


def only_looks(config):
    """Whether this run lists tests or options, and runs no test."""
    options = ("collectonly", "help", "version", "markers", "showfixtures", "show_fixtures_per_test",
               "setupplan", "cacheshow")
    return any(config.getoption(option, False) for option in options)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    if item.get_closest_marker("cutape_replay") is not None:
        from cutape import _pytest_replay

        _pytest_replay.replay_traces(item)


@pytest.fixture
def cutape_replays(request):
    """The JSON reports of the replays that the test's markers asked for, in their order."""
    return request.node.stash.setdefault(REPORTS, [])


# Where a test keeps the reports of its replays.
REPORTS = pytest.StashKey()
