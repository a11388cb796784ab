"""A kernel of CuPy on a stream of the program; then device memory is freed twice."""
import ctypes
import cupy

cuda = ctypes.CDLL("libcuda.so.1")
stream = ctypes.c_void_p()


def launch(count):
    with cupy.cuda.ExternalStream(stream.value):
        return (cupy.arange(count) * 2).sum()


def finish():
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy_v2(stream)
    address = ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096))
    cuda.cuMemFree_v2(address)
    return cuda.cuMemFree_v2(address)  # misuse


cupy.zeros(1)
cuda.cuStreamCreate(ctypes.byref(stream), 1)
launch(1000)
finish()
