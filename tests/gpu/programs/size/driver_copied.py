"""Copies the tensors of a file to the device through page-locked memory, with the driver API alone,
and one back."""

import ctypes
import json
import os
import sys

driver = ctypes.CDLL("libcuda.so.1")


def check(result, what):
    if result:
        sys.exit(f"{what} gave {result}")


device, context = ctypes.c_int(), ctypes.c_void_p()
check(driver.cuInit(0), "cuInit")
check(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
file = os.open(sys.argv[1], os.O_RDONLY)
length = int.from_bytes(os.pread(file, 8, 0), "little")
header = json.loads(os.pread(file, length, 8))
# Not in the order of the file.
for name in sorted(header):
    begin, end = header[name]["data_offsets"]
    size = ctypes.c_size_t(end - begin)
    staging, target = ctypes.c_void_p(), ctypes.c_uint64()
    check(driver.cuMemAllocHost_v2(ctypes.byref(staging), size), "cuMemAllocHost")
    check(driver.cuMemAlloc_v2(ctypes.byref(target), size), "cuMemAlloc")
    bytes_ = memoryview((ctypes.c_char * size.value).from_address(staging.value)).cast("B")
    done = 0
    while done < size.value:
        done += os.preadv(file, [bytes_[done:]], 8 + length + begin + done)
    check(driver.cuMemcpyHtoDAsync_v2(target, staging, size, None), "cuMemcpyHtoDAsync")
    check(driver.cuCtxSynchronize(), "cuCtxSynchronize")
    if name == max(header):
        back = ctypes.create_string_buffer(1 << 20)
        check(driver.cuMemcpyDtoH_v2(back, target, ctypes.c_size_t(len(back))), "cuMemcpyDtoH")
        print(back.raw == bytes(bytes_[: len(back)]), flush=True)
    check(driver.cuMemFree_v2(target), "cuMemFree")
    check(driver.cuMemFreeHost(staging), "cuMemFreeHost")
