"""A kernel compiled by numba."""
import numpy

# numba-cuda still names what numpy 2.5 no longer has.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + 2 * y[i]


x, y = numpy.arange(1000, dtype=numpy.float32), numpy.ones(1000, dtype=numpy.float32)
out = cuda.device_array_like(x)
add[4, 256](cuda.to_device(x), cuda.to_device(y), out)
print(out.copy_to_host()[:4], out.copy_to_host().sum())
