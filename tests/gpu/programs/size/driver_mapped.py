"""Copies a mapped file to the device in pieces, with the driver API alone, and one back."""

import ctypes
import mmap
import os
import sys

driver = ctypes.CDLL("libcuda.so.1")
PIECE = 64 << 20


def check(result, what):
    if result:
        sys.exit(f"{what} gave {result}")


device, context, target = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(driver.cuInit(0), "cuInit")
check(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as memory:
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    check(driver.cuMemAlloc_v2(ctypes.byref(target), ctypes.c_size_t(len(memory))), "cuMemAlloc")
    for at in range(0, len(memory), PIECE):
        count = min(PIECE, len(memory) - at)
        place = ctypes.c_uint64(target.value + at)
        check(driver.cuMemcpyHtoD_v2(place, ctypes.c_void_p(start + at), ctypes.c_size_t(count)), "cuMemcpyHtoD")
    back = ctypes.create_string_buffer(1 << 20)
    place = ctypes.c_uint64(target.value + len(memory) - len(back))
    check(driver.cuMemcpyDtoH_v2(back, place, ctypes.c_size_t(len(back))), "cuMemcpyDtoH")
    print(back.raw == memory[-len(back) :], flush=True)
    check(driver.cuMemFree_v2(target), "cuMemFree")

# The mapping is still exported to ctypes.
os._exit(0)
