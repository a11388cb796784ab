// A kernel whose duration is set when it is compiled, and one that does nothing.  What `work`
// writes does not depend on ROUNDS, because v = v / 2 + 1 converges to 2. It adds to the memory, so
// it writes the same values only if memory was restored.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#ifndef ROUNDS
#define ROUNDS 10000
#endif
#ifndef OFF
#define OFF 0.0f
#endif
#ifdef WIDER
#define MORE , int unused
#define ANOTHER , 0
#else
#define MORE
#define ANOTHER
#endif

#define CHECK(call) \
    do { \
        cudaError_t error = (call); \
        if (error != cudaSuccess) { \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            return 1; \
        } \
    } while (0)

extern "C" __global__ void work(float *sums, const float *values, int count MORE)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count)
        return;
    float value = values[index];
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++)
        value = fmaf(value, 0.5f, 1.0f);
    sums[index] += value + OFF;
}

extern "C" __global__ void nothing() {}

int main()
{
    const int count = 1 << 20;
    const size_t bytes = count * sizeof(float);
    std::vector<float> values(count);
    for (int index = 0; index < count; index++)
        values[index] = index % 1000 * 0.25f;
    float *on_device = nullptr, *sums = nullptr;
    CHECK(cudaMalloc(&on_device, bytes));
    CHECK(cudaMalloc(&sums, bytes));
    CHECK(cudaMemcpy(on_device, values.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(sums, 0, bytes));
    nothing<<<1, 32>>>();
    for (int step = 0; step < 3; step++)
        work<<<count / 256, 256>>>(sums, on_device, count ANOTHER);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values.data(), sums, bytes, cudaMemcpyDeviceToHost));
    printf("%.1f %.1f\n", values[0], values[count - 1]);
    return values[0] == 6.0f && values[count - 1] == 6.0f ? 0 : 1;
}
