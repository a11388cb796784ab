"""Tests of the Python package, on the null driver. `cutape` is on the search path."""

import textwrap

import pytest

pytest_plugins = ["pytester"]

DRIVER = """
    import ctypes

    cuda = ctypes.CDLL("libcuda.so.1")

    def start():
        context = ctypes.c_void_p()
        assert cuda.cuInit(0) == 0
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0

    def allocate(size=64):
        pointer = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        return pointer

    def free(pointer):
        return cuda.cuMemFree_v2(pointer)

    def leak_link_state():
        state = ctypes.c_void_p()
        assert cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state)) == 0
"""


@pytest.fixture(scope="session")
def driver_source():
    """The text of the module `driver`, which calls libcuda."""
    return textwrap.dedent(DRIVER)


@pytest.fixture
def driver(pytester, driver_source):
    """Makes the module `driver` importable for inner tests."""
    pytester.makepyfile(driver=driver_source)
    pytester.syspathinsert()
    return pytester


@pytest.fixture
def check(driver):
    """Runs pytest on a file of tests with --cutape-check, and gives what it prints."""

    def run(tests, *options):
        driver.makepyfile(test_inner="from driver import *\n" + textwrap.dedent(tests))
        return driver.runpytest_subprocess(
            "-p", "cutape.pytest_plugin", "--cutape-check",
            "--cutape-record-args=--driver null", *options,
        )

    return run
