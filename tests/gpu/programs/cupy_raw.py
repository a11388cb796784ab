"""A module with a constant, compiled by NVRTC; a Fourier transform; a linear system."""
import cupy

module = cupy.RawModule(code="""
__constant__ float factor[2];
extern "C" __global__ void scale(float *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = values[i] * factor[0] + factor[1];
}
""")
scale = module.get_function("scale")
pointer = module.get_global("factor")
factor = cupy.ndarray(2, cupy.float32, pointer)
factor[...] = cupy.array([3, 1], cupy.float32)
values = cupy.arange(1000, dtype=cupy.float32)
scale((4,), (256,), (values, cupy.int32(1000)))
print(values[:3].get(), float(values.sum()))
wave = cupy.fft.fft(cupy.sin(cupy.arange(256, dtype=cupy.float64)))
print(round(float(cupy.abs(wave).max()), 6))
matrix = cupy.eye(64) * 4 + cupy.tri(64)
print(round(float(cupy.linalg.solve(matrix, cupy.ones(64)).sum()), 9))
