"""`@pytest.mark.cutape_replay`: a recording as a test."""

import subprocess
import textwrap

import pytest

DIVERGES = {"CUTAPE_NULL_FAIL": "cuMemAlloc=2"}


@pytest.fixture
def trace(driver):
    """A recording of an allocation, in a folder beside the tests."""
    driver.mkdir("traces")
    program = "from driver import *; start(); free(allocate())"
    subprocess.run(
        ["cutape", "record", "--driver", "null", "-o", "traces/one.cutape", "--", "python3", "-c",
         program],
        cwd=driver.path, check=True,
    )
    return driver


def run(pytester, tests, *options):
    pytester.makepyfile(test_inner="import pytest\n" + textwrap.dedent(tests))
    return pytester.runpytest_subprocess(
        "-p", "cutape.pytest_plugin", "--cutape-replay-args=--driver null", *options
    )


TESTS = """
    @pytest.mark.cutape_replay("traces/one.cutape")
    def test_replays(cutape_replays):
        [report] = cutape_replays
        assert report["divergence_count"] == 0
"""


def test_a_recording_is_a_test(trace):
    result = run(trace, TESTS, "--strict-markers")
    result.assert_outcomes(passed=1)


def test_a_divergence_fails_the_test(trace, monkeypatch):
    for name, value in DIVERGES.items():
        monkeypatch.setenv(name, value)
    result = run(trace, TESTS, "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*divergence: call * cuMemAlloc_v2: result differs", "  received CUDA_ERROR_OUT_OF_MEMORY"]
    )
    assert "cuMemAlloc_v2: result differs" in (trace.path / "junit.xml").read_text()


@pytest.mark.parametrize(
    "marker, line",
    [
        ('"missing.cutape"', "*missing.cutape*"),
        ("", "cutape_replay takes one trace*"),
        ('"traces/one.cutape", args=["--nonsense"]', "*--nonsense*"),
    ],
)
def test_what_cannot_be_replayed_fails(trace, marker, line):
    result = run(trace, f"@pytest.mark.cutape_replay({marker})\ndef test_one(): pass")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([line])


def test_a_replay_in_a_recorded_run_is_not_recorded(trace):
    result = run(trace, TESTS, "--cutape-check", "--cutape-record-args=--driver null")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["no test called the CUDA driver: nothing was checked"])
