"""`pytest --cutape-play`: tests on the recordings of their driver calls."""

import json
import shutil
import subprocess
import sys
import textwrap

import pytest

from cutape._pytest_play import file_name, has_driver

RECORD = ["--cutape-record-args=--driver null"]
NOT_RECORDED = "* which this machine does not have: *test_first.cutape was not recorded."
NO_DRIVER = pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")

TESTS = """
    import pytest
    from driver import *

    def test_without_driver():
        print("words")

    def test_first():
        start()
        free(allocate(64))

    @pytest.mark.parametrize("name", ["a/b", "[c d]::e"])
    def test_names(name):
        start()
        free(allocate(len(name)))
"""
NAMES = ["test_first", "test_names[[c%20d].e]", "test_names[a%2Fb]"]
CHANGED = TESTS.replace("allocate(64)", "allocate(65)")


def options_of(mode, *options):
    own = ["-p", "cutape.pytest_plugin", "--cutape-play=played", f"--cutape-play-mode={mode}"]
    return [*own, *options]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory, driver_source):
    """A folder with the recordings of TESTS."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "driver.py").write_text(driver_source)
    (folder / "test_inner.py").write_text(textwrap.dedent(TESTS))
    command = [sys.executable, "-m", "pytest", *options_of("once", *RECORD)]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "played"


@pytest.fixture
def play(driver):
    """Runs pytest on a file of tests with --cutape-play, and gives what it prints."""

    def run(tests, *options, mode="none"):
        driver.makepyfile(test_inner=textwrap.dedent(tests))
        return driver.runpytest_subprocess(*options_of(mode, *options))

    return run


@pytest.fixture
def replay(play, driver, recorded):
    """As `play`, with the recordings of TESTS."""
    shutil.copytree(recorded, driver.path / "played")
    return play


@pytest.fixture
def recordings(driver):
    """The bytes of the recordings that there are, by their names."""

    def read():
        folder = driver.path / "played" / "test_inner"
        files = [path for path in (driver.path / "played").rglob("*") if path.is_file()]
        assert all(path.parent == folder and path.suffix == ".cutape" for path in files)
        return {path.stem: path.read_bytes() for path in sorted(files)}

    return read


def test_tests_play_what_they_recorded(replay, recordings):
    before = recordings()
    assert list(before) == NAMES
    replay(TESTS).assert_outcomes(passed=4)
    assert recordings() == before


def test_the_recording_answers(play, monkeypatch):
    tests = """
        from driver import *

        def test_devices():
            count = ctypes.c_int()
            cuda.cuInit(0)
            cuda.cuDeviceGetCount(ctypes.byref(count))
            assert count.value == 3
    """
    monkeypatch.setenv("CUTAPE_NULL_DEVICES", "3")
    play(tests, *RECORD, mode="once").assert_outcomes(passed=1)
    monkeypatch.setenv("CUTAPE_NULL_DEVICES", "2")
    play(tests).assert_outcomes(passed=1)
    play(tests, *RECORD, mode="all").assert_outcomes(failed=1)


def test_a_changed_test_fails_with_the_difference(replay, driver):
    result = replay(CHANGED, "--junitxml=junit.xml")
    result.assert_outcomes(passed=3, failed=1)
    lines = [
        "The test's driver calls are not the recorded ones.",
        "*recorded: call * cuMemAlloc_v2(*bytesize: 64), at allocate (*driver.py)",
        "*bytesize: 64 recorded, 65 made",
        "The recording is played/test_inner/test_first.cutape. To record the test again:",
        "  pytest --cutape-play played --cutape-play-mode new test_inner.py::test_first",
        "FAILED test_inner.py::test_first - The test's driver calls are not *",
    ]
    result.stdout.fnmatch_lines(lines)
    assert "bytesize: 64 recorded, 65 made" in (driver.path / "junit.xml").read_text()


def test_options_of_play(replay, driver):
    done = replay(TESTS, "--cutape-play-args=--learn-unset learned")
    done.assert_outcomes(passed=4)
    assert json.loads((driver.path / "learned").read_text()) == {"kernels": {}}


def test_a_test_that_makes_fewer_calls_fails(replay):
    result = replay(TESTS.replace("free(allocate(64))", "allocate(64)"), "-k", "first")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["*goes on with 1 call; the first is call *, cuMemFree_v2"])


def test_a_test_without_recording_fails(play, recordings):
    result = play(TESTS)
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "This test calls the CUDA driver and has no recording: "
            "played/test_inner/test_first.cutape. Record it on a machine with a GPU:",
            "  pytest --cutape-play played --cutape-play-mode once test_inner.py::test_first",
        ]
    )
    assert recordings() == {}


@pytest.mark.parametrize(
    "mode, failed, new",
    [("none", 1, []), ("once", 1, []), ("new", 0, ["test_first"]), ("all", 0, NAMES)],
)
def test_modes(replay, recordings, mode, failed, new):
    before = recordings()
    replay(CHANGED, *RECORD, mode=mode).assert_outcomes(passed=4 - failed, failed=failed)
    after = recordings()
    assert list(after) == NAMES
    assert [name for name in NAMES if after[name] != before[name]] == new


@NO_DRIVER
def test_without_a_driver_nothing_is_recorded(play, recordings):
    result = play(TESTS, "-k", "first", mode="once")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines([NOT_RECORDED])
    assert recordings() == {}


@NO_DRIVER
@pytest.mark.parametrize(
    "mode, line",
    [
        ("new", "*bytesize: 64 recorded, 65 made"),
        ("all", NOT_RECORDED),
    ],
)
def test_without_a_driver_recordings_stay(replay, recordings, mode, line):
    before = recordings()
    result = replay(CHANGED, "-k", "first", mode=mode)
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines([line])
    assert recordings() == before


@pytest.mark.parametrize(
    "test, line",
    [
        # A failure would be played again and again.
        ("start()\n    assert [1] == [2]", "E       assert [[]1[]] == [[]2[]]"),
        # One trace answers one process.
        (
            "start()\n    import subprocess, sys\n    subprocess.run([sys.executable, '-c', "
            "'import driver; driver.start()'], check=True)",
            "2 processes of this test call the driver*",
        ),
        (
            "start()\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)",
            "The process was killed by SIGKILL in this test.",
        ),
    ],
)
def test_what_is_not_kept(play, recordings, test, line):
    tests = f"from driver import *\ndef test_one():\n    {test}\ndef test_two():\n    start()\n"
    result = play(tests, *RECORD, mode="once")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([line])
    assert list(recordings()) == ["test_two"]


def test_workers_of_xdist_play(play, recordings):
    tests = TESTS.replace("def test_first", "@pytest.mark.xdist_group('g@h')\n    def test_first")
    options = ["-n", "2", "--dist", "loadgroup"]
    play(tests, *RECORD, *options, mode="once").assert_outcomes(passed=4)
    assert list(recordings()) == NAMES
    changed = tests.replace("allocate(64)", "allocate(65)")
    result = play(changed, *options)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*bytesize: 64 recorded, 65 made"])


def test_a_damaged_recording_fails_its_test(play, driver):
    folder = driver.mkdir("played") / "test_inner"
    folder.mkdir()
    (folder / "test_first.cutape").write_text("nothing")
    result = play(TESTS, "-k", "first", *RECORD, mode="new")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(
        ["played/test_inner/test_first.cutape cannot be played. *", "  pytest *", "cutape: *"]
    )
    assert (folder / "test_first.cutape").read_text() == "nothing"


def test_an_expected_failure_is_no_excuse(play):
    tests = """
        import pytest
        from driver import *

        @pytest.mark.xfail
        def test_one():
            start()
            free(allocate(64))
            assert False
    """
    play(tests, *RECORD, mode="once").assert_outcomes(xfailed=1)
    play(tests).assert_outcomes(xfailed=1)
    play(tests.replace("free(allocate(64))", "allocate(64)")).assert_outcomes(failed=1)
    play(tests.replace("64", "65")).assert_outcomes(failed=1)


def test_tests_report_as_without_cutape(play, driver):
    tests = """
        import warnings, pytest

        @pytest.fixture
        def broken():
            assert 0, "broken fixture"

        def test_fails():
            print("words of test_fails")
            assert [1] == [2]

        def test_error(broken):
            pass

        @pytest.mark.skip(reason="not now")
        def test_skipped():
            pass

        def test_warns(tmp_path):
            warnings.warn(f"careful in {tmp_path}")
    """
    result = play(tests, "-rs", "--basetemp=base")
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "E       AssertionError: broken fixture",
            "E       assert [[]1[]] == [[]2[]]",
            "words of test_fails",
            "*UserWarning: careful in */base/test-4/test_warns0",
            "SKIPPED * not now",
        ]
    )
    # The cache of failures is this process's.
    play(tests, "--lf").assert_outcomes(failed=1, errors=1)
    play(tests, "-x").assert_outcomes(failed=1)


def test_a_test_that_depends_on_the_process(play):
    tests = """
        import os, pytest

        @pytest.mark.parametrize("process", [os.getpid()])
        def test_one(process):
            pass
    """
    result = play(tests)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The test's process has no test of this name; *"])


@pytest.mark.parametrize(
    "option, message",
    [
        ("--pdb", "--cutape-play does not work with --pdb: *"),
        ("--cutape-check", "--cutape-check does not work with --cutape-play; *"),
    ],
)
def test_what_does_not_work_is_refused(play, option, message):
    result = play(TESTS, option)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


@pytest.mark.parametrize(
    "nodeid, name",
    [
        ("tests/test_a.py::TestB::test_c[1-x]", "tests/test_a/TestB.test_c[1-x].cutape"),
        ("../test_a.py::test_b", "%2E%2E/test_a/test_b.cutape"),
        ("README.md::README.md", "README.md/README.md.cutape"),
        ("test_a.py::test_b['*' é\\x00]", "test_a/test_b[%27%2A%27%20%C3%A9%5Cx00].cutape"),
    ],
)
def test_names_of_recordings(nodeid, name):
    assert file_name(nodeid) == name


def test_long_names_of_recordings_differ():
    first, second = (file_name(f"test_a.py::test_b[{'x' * 300}{end}]") for end in "yz")
    assert first != second
    assert len(first) == len(second) < 255


POLLS = """
    import ctypes, os
    from driver import *

    NOTHING = b".version 7.0\\n.target sm_70\\n.address_size 64\\n" \\
              b".visible .entry nothing(.param .u64 at) { ret; }\\n"

    def test_polls():
        start()
        memory, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(4096), 0) == 0
        assert cuda.cuModuleLoadData(ctypes.byref(module), NOTHING) == 0
        assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"nothing") == 0
        flag = ctypes.c_uint32.from_address(memory.value)
        flag.value = 0
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
        assert cuda.cuLaunchKernel(function, *[1] * 6, 0, None, parameters, None) == 0
        if "DEVICE" in os.environ:
            flag.value = 7  # as a kernel would: the null driver runs none
        while flag.value != 7:
            pass
        assert cuda.cuCtxSynchronize() == 0
"""


def test_what_a_test_polls_is_recorded(play, monkeypatch):
    monkeypatch.setenv("DEVICE", "1")
    play(POLLS, *RECORD, mode="once").assert_outcomes(passed=1)
    monkeypatch.delenv("DEVICE")
    play(POLLS).assert_outcomes(passed=1)
