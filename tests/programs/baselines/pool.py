"""Frees memory of a pool twice. A test runs it again with more lines, and with the word `second`,
where the same call also frees other memory twice."""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")

# More lines go here: elsewhere in the file.


class Pool:
    def weights(self):
        return self.allocate(64)

    def cache(self):
        return self.allocate(128)

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def release(self, pointer):
        cuda.cuMemFree_v2(pointer)


context = ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
pool = Pool()
# More lines go here: in the same function.
weights = pool.weights()
pool.release(weights)
pool.release(weights)
if "second" in sys.argv:
    cache = pool.cache()
    for owner in range(2):
        pool.release(cache)
cuda.cuDevicePrimaryCtxRelease_v2(0)
print("EXIT-SUCCESS")
