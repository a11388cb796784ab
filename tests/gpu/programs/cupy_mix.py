"""CuPy: a kernel that the null driver computes too, launched on a stream; elementwise and reduction
kernels."""
import cupy
import numpy

module = cupy.RawModule(code="""
extern "C" __global__ void cutape_mix(unsigned *out, const unsigned *in, unsigned count,
                                      unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned sum = out[i] * 0x9e3779b1u + in[i];
    out[i] = (sum << 7 | sum >> 25) ^ (seed + i * 0x85ebca6bu);
}
""")
mix = module.get_function("cutape_mix")
count, seed = 1000, 7
index = numpy.arange(count, dtype=numpy.uint32)
total = index * numpy.uint32(0x9E3779B1) + 3 * index
expected = (total << 7 | total >> 25) ^ (index * numpy.uint32(0x85EBCA6B) + seed)
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    out, words = cupy.asarray(index), cupy.asarray(3 * index)
    mix((4,), (256,), (out, words, numpy.uint32(count), numpy.uint32(seed)))
    assert (out.get() == expected).all(), out.get()
    done = stream.record()
done.synchronize()
values = cupy.arange(count, dtype=cupy.float32) * 2 + 1
print(values[:3].get(), float(values.sum()))
