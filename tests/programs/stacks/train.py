"""Frees memory twice, through ctypes, which releases the GIL for each call of CDLL."""

import ctypes
import sys
import threading

# PyDLL keeps the GIL.
cuda = (ctypes.PyDLL if "gil" in sys.argv else ctypes.CDLL)("libcuda.so.1")


def call(name, *arguments):
    return getattr(cuda, name)(*arguments)


def free(pointer):
    return call("cuMemFree_v2", pointer)


class Trainer:
    def step(self, pointer):
        return (
            free(pointer)
            + sum(free(one) for one in [pointer])  # line: step
        )


def start(kind):
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    pointer = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(64))
    list(map(Trainer().step, [pointer]))  # line: start
    call("cuDevicePrimaryCtxRelease_v2", 0)


if "thread" in sys.argv:
    thread = threading.Thread(target=start, args=("thread",))
    thread.start()
    thread.join()
else:
    start("main")
print("EXIT-SUCCESS")
