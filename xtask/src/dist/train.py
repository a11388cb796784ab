# What `cutape record -- python3 train.py` records in a fresh system: memory that is copied to the
# device and back, through the driver's API.
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")


def check(result):
    if result != 0:
        raise SystemExit(f"the driver returned {result}")


device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
sent, received = (ctypes.c_uint32 * 1024)(*range(1024)), (ctypes.c_uint32 * 1024)()
size = ctypes.c_size_t(ctypes.sizeof(sent))
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), size))
check(cuda.cuMemcpyHtoD_v2(memory, sent, size))
check(cuda.cuMemcpyDtoH_v2(received, memory, size))
check(cuda.cuMemFree_v2(memory))
check(cuda.cuCtxSetCurrent(None))
check(cuda.cuDevicePrimaryCtxRelease_v2(device))
if list(received) != list(sent):
    raise SystemExit("other bytes came back")
print("TRAINED")
