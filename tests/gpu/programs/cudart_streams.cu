// The runtime, linked statically: streams, events, pinned memory, stream-ordered memory, constants,
// a cooperative launch.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

__constant__ float factors[4];
__device__ int counter;

__global__ void scale(float *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = values[i] * factors[i % 4] + 1.0f;
}

__global__ void count_large(const float *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && values[i] > 100.0f) atomicAdd(&counter, 1);
}

__global__ void two_steps(int *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = i;
    cooperative_groups::this_grid().sync();
    int other = (i + 1) % count;
    int seen = i < count ? values[other] : 0;
    cooperative_groups::this_grid().sync();
    if (i < count) values[i] = seen;
}

int main() {
    const int count = 1 << 16;
    float *pinned, *device[2];
    CHECK(cudaMallocHost(&pinned, count * sizeof(float)));
    for (int i = 0; i < count; i++) pinned[i] = float(i % 977);
    const float host_factors[4] = {1, 2, 3, 4};
    CHECK(cudaMemcpyToSymbol(factors, host_factors, sizeof host_factors));
    cudaStream_t streams[2];
    cudaEvent_t ready;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    for (int s = 0; s < 2; s++) {
        CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        CHECK(cudaMallocAsync(&device[s], count * sizeof(float), streams[s]));
        CHECK(cudaMemcpyAsync(device[s], pinned, count * sizeof(float), cudaMemcpyHostToDevice,
                              streams[s]));
        if (s == 1) CHECK(cudaStreamWaitEvent(streams[1], ready, 0));
        scale<<<count / 256, 256, 0, streams[s]>>>(device[s], count);
        CHECK(cudaGetLastError());
        if (s == 0) CHECK(cudaEventRecord(ready, streams[0]));
    }
    std::vector<float> back(count);
    CHECK(cudaMemcpyAsync(pinned, device[1], count * sizeof(float), cudaMemcpyDeviceToHost,
                          streams[1]));
    CHECK(cudaStreamSynchronize(streams[1]));
    double sum = 0;
    for (int i = 0; i < count; i++) sum += pinned[i];
    int zero = 0, large = 0;
    CHECK(cudaMemcpyToSymbol(counter, &zero, sizeof zero));
    count_large<<<count / 256, 256, 0, streams[0]>>>(device[0], count);
    CHECK(cudaStreamSynchronize(streams[0]));
    CHECK(cudaMemcpyFromSymbol(&large, counter, sizeof large));
    printf("sum %.0f, %d above 100\n", sum, large);

    int *ints, ints_count = 4096, *arguments_ints;
    CHECK(cudaMalloc(&ints, ints_count * sizeof(int)));
    arguments_ints = ints;
    void *arguments[] = {&arguments_ints, &ints_count};
    CHECK(cudaLaunchCooperativeKernel((void *)two_steps, dim3(ints_count / 256), dim3(256),
                                      arguments, 0, 0));
    std::vector<int> turned(ints_count);
    CHECK(cudaMemcpy(turned.data(), ints, ints_count * sizeof(int), cudaMemcpyDeviceToHost));
    printf("turned %d %d %d\n", turned[0], turned[1], turned[ints_count - 1]);

    for (int s = 0; s < 2; s++) {
        CHECK(cudaFreeAsync(device[s], streams[s]));
        CHECK(cudaStreamSynchronize(streams[s]));
        CHECK(cudaStreamDestroy(streams[s]));
    }
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaFree(ints));
    CHECK(cudaFreeHost(pinned));
    puts("EXIT-SUCCESS");
}
