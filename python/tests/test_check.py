"""`pytest --cutape-check`: which test a finding belongs to, and what pytest makes of it."""

import os
import queue
import xml.etree.ElementTree as xml

import pytest

from cutape._pytest_process import read_lines

BAD = """
    start()

    def test_good():
        free(allocate())

    def test_bad():
        pointer = allocate()
        free(pointer)
        free(pointer)

    def test_other():
        print("words of test_other")
"""


def cases(path):
    """The test cases of a JUnit file: name, and the tags and messages of what went wrong."""
    return {
        (case.get("classname"), case.get("name")): [
            (what.tag, what.get("message"), what.text)
            for what in case
            if what.tag in ("error", "failure", "skipped")
        ]
        for case in xml.parse(path).iter("testcase")
    }


def test_a_finding_is_an_error_of_its_test(check, driver):
    result = check(BAD, "--junitxml=junit.xml")
    result.assert_outcomes(passed=3, errors=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "collected 3 items, recorded by cutape",
            "test_inner.py ...E*",
            "*ERROR at teardown of test_bad*",
            "error[[]memory-double-free[]]: memory freed twice",
            "  = test: called from test_inner.py:11 in test_bad",
            "checked the driver calls of 1 process: 1 error",
            "ERROR test_inner.py::test_bad - error*",
        ]
    )
    found = cases(driver.path / "junit.xml")
    assert {name: len(what) for name, what in found.items()} == {
        ("test_inner", "test_good"): 0,
        ("test_inner", "test_bad"): 1,
        ("test_inner", "test_other"): 0,
    }
    tag, message, text = found["test_inner", "test_bad"][0]
    assert tag == "error"
    assert "error[memory-double-free]: memory freed twice at driver.py:" in message
    assert "created: cuMemAlloc_v2" in text


def test_a_run_without_findings_is_clean(check):
    result = check("def test_good():\n    start()\n    free(allocate())")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["checked the driver calls of 1 process: no findings"])


def test_a_crash_is_a_failure_of_its_test(check, driver):
    tests = """
        import os, signal
        start()

        def test_before():
            pass

        def test_dies():
            pointer = allocate()
            free(pointer)
            free(pointer)
            os.kill(os.getpid(), signal.SIGKILL)

        def test_after():
            pass
    """
    result = check(tests, "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "The process was killed by SIGKILL in this test. 1 test after it did not run.",
            "error[[]memory-double-free[]]: memory freed twice",
            "FAILED test_inner.py::test_dies - The process was killed by SIGKILL*",
        ]
    )
    [(tag, _, text)] = cases(driver.path / "junit.xml")["test_inner", "test_dies"]
    assert tag == "failure"
    assert "memory-double-free" in text


def test_an_unfinished_line_of_a_process_is_left_out():
    reading, writing = os.pipe()
    os.write(writing, b'{"event": "start"}\n{"event": "rep')
    os.close(writing)
    lines = queue.SimpleQueue()
    read_lines(reading, lines)
    assert lines.get_nowait() == '{"event": "start"}\n' and lines.empty()


def test_a_call_in_which_the_driver_crashes_is_named(check, monkeypatch):
    monkeypatch.setenv("CUTAPE_NULL_CRASH", "cuMemFree")
    result = check("def test_dies():\n    start()\n    free(allocate())")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "The process was killed by SIGSEGV in this test.",
            "Call 4 had not returned: cuMemFree_v2(*",
        ]
    )


@pytest.mark.parametrize(
    "tests, place",
    [
        # At the import of the module.
        ("start()\nfree(free(allocate()))\npointer = allocate()\nfree(pointer)\nfree(pointer)\n"
         "def test_one(): pass", "cutape::outside-of-tests"),
        # In a fixture, which belongs to the test that it is made for.
        ("import pytest\n@pytest.fixture\ndef twice():\n    start()\n    pointer = allocate()\n"
         "    yield\n    free(pointer)\n    free(pointer)\ndef test_one(twice): pass",
         "test_inner.py::test_one"),
        # What is never destroyed belongs to the test that created it.
        ("def test_leaks():\n    start()\n    leak_link_state()\ndef test_two(): pass",
         "test_inner.py::test_leaks"),
        # In a process that a test starts.
        ("import subprocess, sys\ndef test_first(): pass\ndef test_child():\n"
         "    subprocess.run([sys.executable, '-c', 'from driver import *; start(); "
         "p = allocate(); free(p); free(p)'], check=True)", "test_inner.py::test_child"),
        # In a thread of a test.
        ("import threading\ndef work():\n    start()\n    pointer = allocate()\n    free(pointer)\n"
         "    free(pointer)\ndef test_thread():\n    thread = threading.Thread(target=work)\n"
         "    thread.start()\n    thread.join()", "test_inner.py::test_thread"),
    ],
)
def test_findings_belong_to_tests(check, tests, place):
    result = check(tests)
    assert result.ret == 1
    found = [line.split()[1] for line in result.outlines if line.startswith("ERROR ")]
    assert found == [place]


@pytest.mark.parametrize(
    "options, errors, line",
    [
        (["--cutape-fail-on=never"], 0, "error[[]memory-double-free[]]: * (test_inner.py::test_bad)"),
        (["--cutape-suppress=suppress.txt"], 0, "checked*: no findings"),
        (["--cutape-check-args=--suppress suppress.txt"], 0, "checked*: no findings"),
        (["--cutape-fail-on=error"], 1, "checked*: 1 error"),
        (["-k", "good"], 0, "collected 3 items / 2 deselected / 1 selected, recorded by cutape"),
    ],
)
def test_options_choose_what_fails(check, driver, options, errors, line):
    driver.path.joinpath("suppress.txt").write_text("memory-double-free\n")
    result = check(BAD, *options)
    assert result.parseoutcomes().get("errors", result.parseoutcomes().get("error", 0)) == errors
    assert result.ret == min(errors, 1)
    result.stdout.fnmatch_lines([line])


def test_a_check_that_cannot_run_is_an_error(check):
    result = check(BAD, "--cutape-baseline=nothing.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["The recording was not checked.", "cutape: cannot read nothing.json: *"]
    )


def test_recordings_are_kept(check, driver):
    for name in ("pytest.cutape", "pytest-1.cutape"):
        result = check(BAD, "--cutape-trace-dir=traces")
        result.stdout.fnmatch_lines([f"recording: *traces/{name}"])
    found = sorted(path.name for path in (driver.path / "traces").iterdir())
    assert found == ["pytest-1.cutape", "pytest.cutape"]


def test_workers_of_xdist_are_recorded(check, driver):
    result = check(BAD, "-n", "2", "--junitxml=junit.xml")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "collected 3 items, recorded by cutape",
            "*ERROR at teardown of test_bad*",
            "checked the driver calls of 2 processes: 1 error",
        ]
    )
    found = cases(driver.path / "junit.xml")
    assert [name for name, what in found.items() if what] == [("test_inner", "test_bad")]
    assert len(found) == 3


def test_a_worker_that_dies_is_reported(check):
    tests = """
        import os, signal

        def test_dies():
            start()
            pointer = allocate()
            free(pointer)
            free(pointer)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    result = check(tests, "-n", "1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "error[[]memory-double-free[]]: memory freed twice",
            "worker 'gw0' crashed while running 'test_inner.py::test_dies'",
        ]
    )


@pytest.mark.parametrize(
    "options, message",
    [
        (["--pdb"], "--cutape-check does not work with --pdb: *"),
        (["--cutape-check-args='"], "--cutape-check-args: No closing quotation"),
    ],
)
def test_what_does_not_work_is_refused(check, options, message):
    result = check(BAD, *options)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_tests_report_as_without_cutape(check, driver):
    tests = """
        import warnings, pytest

        def test_fails():
            print("words of test_fails")
            assert [1] == [2]

        @pytest.mark.skip(reason="not now")
        def test_skipped():
            pass

        @pytest.mark.xfail(strict=True)
        def test_expected():
            assert False

        def test_warns():
            warnings.warn("careful")

        def test_properties(record_property):
            record_property("key", "value")
    """
    result = check(tests, "--junitxml=junit.xml", "-rs")
    result.assert_outcomes(passed=2, failed=1, skipped=1, xfailed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "E       assert [[]1[]] == [[]2[]]",
            "words of test_fails",
            "*UserWarning: careful",
            "no test called the CUDA driver: nothing was checked",
            "SKIPPED * not now",
        ]
    )
    assert 'name="key" value="value"' in (driver.path / "junit.xml").read_text()
    # The cache of failures is this process's.
    result = check(tests, "--lf")
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "tests, options, status, line",
    [
        ("def test_one(): assert 0\ndef test_two(): pass", ["-x"], 1, "*stopping after 1 failures*"),
        ("def test_one(): import pytest; pytest.exit('enough')", [], 2, "*enough*"),
        ("def nothing(): pass", [], 5, "collected 0 items, recorded by cutape"),
        ("import missing_module", [], 2, "E   ModuleNotFoundError: *missing_module*"),
    ],
)
def test_a_run_ends_as_without_cutape(check, tests, options, status, line):
    result = check(tests, *options)
    assert result.ret == status
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("The process ended*")


def test_without_the_option_nothing_is_recorded(driver):
    driver.makepyfile(test_inner="def test_one(): pass")
    result = driver.runpytest_subprocess("-p", "cutape.pytest_plugin")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*recorded by cutape*")


def test_listing_records_nothing(driver):
    driver.makepyfile(test_inner="def test_one(): pass")
    result = driver.runpytest_subprocess(
        "-p", "cutape.pytest_plugin", "--cutape-check", "--collect-only", "-q"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["test_inner.py::test_one"])
    result.stdout.no_fnmatch_line("*cutape*")
