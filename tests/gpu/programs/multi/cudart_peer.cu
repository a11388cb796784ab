// Two devices by the runtime: kernels on each, cudaMemcpyPeer in both directions, a kernel that
// reads its peer's memory.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void fill(int *values, int count, int first) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = first + i;
}

__global__ void add(int *values, const int *others, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += others[i];
}

static void show(const char *label, int device, const int *values, int count) {
    std::vector<int> back(count);
    CHECK(cudaSetDevice(device));
    CHECK(cudaMemcpy(back.data(), values, count * sizeof(int), cudaMemcpyDeviceToHost));
    long long sum = 0;
    for (int value : back) sum += value;
    printf("%s: %d %d, sum %lld\n", label, back[0], back[count - 1], sum);
}

int main() {
    const int count = 1 << 18;
    const size_t bytes = count * sizeof(int);
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        puts("skipped: one device");
        return 0;
    }
    int *values[2], *copies[2];
    cudaStream_t streams[2];
    for (int d = 0; d < 2; d++) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaMalloc(&values[d], bytes));
        CHECK(cudaMalloc(&copies[d], bytes));
        CHECK(cudaStreamCreate(&streams[d]));
        fill<<<count / 256, 256, 0, streams[d]>>>(values[d], count, 1000 * (d + 1));
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(streams[d]));
    }
    CHECK(cudaMemcpyPeer(copies[1], 1, values[0], 0, bytes));
    CHECK(cudaMemcpyPeerAsync(copies[0], 0, values[1], 1, bytes, streams[1]));
    CHECK(cudaStreamSynchronize(streams[1]));
    CHECK(cudaDeviceSynchronize());
    show("0 on 1", 1, copies[1], count);
    show("1 on 0", 0, copies[0], count);
    int there = 0, back = 0;
    CHECK(cudaDeviceCanAccessPeer(&there, 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
    printf("peers %d %d\n", there, back);
    if (there && back) {
        for (int d = 0; d < 2; d++) {
            CHECK(cudaSetDevice(d));
            CHECK(cudaDeviceEnablePeerAccess(1 - d, 0));
        }
        CHECK(cudaSetDevice(0));
        add<<<count / 256, 256, 0, streams[0]>>>(values[0], values[1], count);
        CHECK(cudaStreamSynchronize(streams[0]));
        show("sum on 0", 0, values[0], count);
        CHECK(cudaMemcpy(values[1], values[0], bytes, cudaMemcpyDefault));
        CHECK(cudaDeviceSynchronize());
        show("sum on 1", 1, values[1], count);
    }
    for (int d = 0; d < 2; d++) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaStreamDestroy(streams[d]));
        CHECK(cudaFree(values[d]));
        CHECK(cudaFree(copies[d]));
    }
    puts("EXIT-SUCCESS");
}
