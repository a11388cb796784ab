"""Forces between bodies, compiled by numba."""
import numpy

# numba-cuda still names what numpy 2.5 no longer has.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda, float32


@cuda.jit(fastmath=True)
def forces(out, count):
    i = cuda.grid(1)
    if i >= count:
        return
    x, force = float32(i) / float32(count), float32(0)
    for j in range(count):
        far = float32(j) / float32(count) - x
        force += far / (far * far + float32(0.01))
    out[i] = force


count = 16384
out = cuda.device_array(count, dtype=numpy.float32)
for _ in range(3):
    forces[count // 128, 128](out, count)
print(out.copy_to_host()[:3])
