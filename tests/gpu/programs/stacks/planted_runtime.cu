// nvcc: -lcuda -g -O2
// A C++ program of the CUDA runtime that frees memory of the driver API twice, in a template.
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void fill(int *values, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        values[at] = at;
}

template <typename T> struct Buffer {
    CUdeviceptr address = 0;
    explicit Buffer(int count) { cuMemAlloc(&address, count * sizeof(T)); }
    __attribute__((noinline)) int release()
    {
        int result = cuMemFree(address); // misuse
        return result + 1;
    }
};

int main()
{
    cudaFree(nullptr);
    Buffer<int> buffer(1000);
    fill<<<4, 256>>>(reinterpret_cast<int *>(buffer.address), 1000);
    cudaDeviceSynchronize();
    int first = buffer.release();
    std::printf("%d\n", first + (buffer.release() != 0));
    return 0;
}
