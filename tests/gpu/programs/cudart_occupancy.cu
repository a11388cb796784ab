// How many blocks fit, and launches that depend on it: much shared memory, a cooperative launch of
// as many blocks as fit, a cluster. Then the device is reset and used again.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

extern __shared__ int shared[];

__global__ void reverse(int *values) {
    shared[threadIdx.x] = values[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    values[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(128) count(int *counter) {
    if (threadIdx.x == 0) atomicAdd(counter, 1);
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) counter[1] = counter[0];
}

__global__ void ranks(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x % 2;
}

int main() {
    const int threads = 128, large = 100 << 10;
    int blocks = 0, smallest = 0, best = 0, multiprocessors = 0, cooperative = 0, back[8] = {};
    cudaFuncAttributes attributes;
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, large));
    CHECK(cudaFuncGetAttributes(&attributes, reverse));
    printf("dynamic %d, most threads %d\n", attributes.maxDynamicSharedSizeBytes,
           attributes.maxThreadsPerBlock);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, threads, large));
    printf("%d blocks with %d bytes\n", blocks, large);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&smallest, &best, count));
    printf("blocks of %d threads\n", best);
    int *memory;
    CHECK(cudaMalloc(&memory, 1024 * sizeof(int)));
    CHECK(cudaMemset(memory, 0, 1024 * sizeof(int)));
    reverse<<<2, threads, large>>>(memory);
    CHECK(cudaGetLastError());
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, count, threads, 0));
    void *arguments[] = {&memory};
    if (cooperative) {
        CHECK(cudaLaunchCooperativeKernel((void *)count, dim3(multiprocessors * blocks),
                                          dim3(threads), arguments, 0, 0));
    }
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(8);
    config.blockDim = dim3(threads);
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, ranks, &config));
    printf("clusters %s\n", clusters > 0 ? "fit" : "do not fit");
    CHECK(cudaLaunchKernelExC(&config, (void *)ranks, arguments));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(back, memory, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d\n", back[0], back[7]);
    CHECK(cudaFree(memory));

    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&memory, 1024 * sizeof(int)));
    CHECK(cudaMemset(memory, 1, 1024 * sizeof(int)));
    reverse<<<2, threads, threads * sizeof(int)>>>(memory);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(back, memory, sizeof back, cudaMemcpyDeviceToHost));
    printf("%#x\n", back[0]);
    CHECK(cudaFree(memory));
    puts("EXIT-SUCCESS");
}
