// 5,000 launches of 20 kernels on 16 buffers, for execute.py.
//   -DCHANGED=N   kernel N computes with another constant
//   -DUPLOAD      one number of an upload differs
#include <cstdio>
#include <cstdlib>

#ifndef CHANGED
#define CHANGED -1
#endif

enum { COUNT = 4096, BUFFERS = 16, KERNELS = 20, LAUNCHES = 5000 };

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t result = (call);                                                    \
        if (result != cudaSuccess) {                                                    \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result));             \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

#define KERNEL(N)                                                                       \
    extern "C" __global__ void stage_##N(float *out, const float *in, int count)        \
    {                                                                                   \
        const float factor = 0.01f * (N + 1) + (N == CHANGED ? 1e-3f : 0.0f);           \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                  \
        if (i < count)                                                                  \
            out[i] = out[i] * 0.5f + in[i] * factor + N;                                \
    }

#define ALL(DO)                                                                         \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9)                         \
    DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19)

ALL(KERNEL)

#define NAME(N) stage_##N,

int main()
{
    void (*kernels[])(float *, const float *, int) = {ALL(NAME)};
    float *buffers[BUFFERS], numbers[COUNT];
    for (int buffer = 0; buffer < BUFFERS; buffer++) {
        for (int i = 0; i < COUNT; i++)
            numbers[i] = (float)(i % 97) + buffer;
#ifdef UPLOAD
        if (buffer == 5)
            numbers[1000] += 1;
#endif
        CHECK(cudaMalloc(&buffers[buffer], sizeof numbers));
        CHECK(cudaMemcpy(buffers[buffer], numbers, sizeof numbers, cudaMemcpyHostToDevice));
    }
    for (int launch = 0; launch < LAUNCHES; launch++) {
        float *out = buffers[launch % BUFFERS];
        const float *in = buffers[(launch * 5 + 3) % BUFFERS];
        // 7 and 20 have no common divisor: each kernel is launched 250 times.
        kernels[launch * 7 % KERNELS]<<<COUNT / 256, 256>>>(out, in, COUNT);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(numbers, buffers[0], sizeof numbers, cudaMemcpyDeviceToHost));
    return 0;
}
