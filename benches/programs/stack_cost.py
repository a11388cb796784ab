"""Calls the driver below a number of frames of Python: stack_cost.py FRAMES CALLS."""

import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
pointer = ctypes.byref(context)
call = cuda.cuCtxGetCurrent


def below(frames, calls):
    if frames > 1:
        return below(frames - 1, calls)
    times = []
    for _ in range(15):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call(pointer)
        times.append((time.perf_counter_ns() - start) / calls)
    return sorted(times)[len(times) // 2]


cuda.cuInit(0)
print("call_ns", below(int(sys.argv[1]), int(sys.argv[2])))
