// A loop over 64 MiB of registered host memory: copies in both directions, with launches between.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const size_t words = 16 << 20;
const int parts = 4, rounds = 120;

__global__ void add(int *data, int value) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    data[i] += value;
}

int main() {
    int *host = static_cast<int *>(aligned_alloc(4096, words * sizeof(int))), *device;
    for (size_t i = 0; i < words; i++) host[i] = int(i % 1000);
    CHECK(cudaHostRegister(host, words * sizeof(int), cudaHostRegisterDefault));
    CHECK(cudaMalloc(&device, words * sizeof(int)));
    cudaStream_t streams[parts];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpy(device, host, words * sizeof(int), cudaMemcpyHostToDevice));
    const size_t part = words / parts;
    for (int round = 0; round < rounds; round++) {
        int at = round % parts;
        add<<<part / 256, 256, 0, streams[at]>>>(device + at * part, round);
        CHECK(cudaGetLastError());
        if (round % 8 == 7)
            CHECK(cudaMemcpyAsync(host + at * part, device + at * part, part * sizeof(int),
                                  cudaMemcpyDeviceToHost, streams[at]));
    }
    for (cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host, device, words * sizeof(int), cudaMemcpyDeviceToHost));
    long sum = 0;
    for (size_t i = 0; i < words; i++) sum += host[i];
    printf("%ld\n", sum);
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaHostUnregister(host));
    CHECK(cudaFree(device));
    free(host);
    puts("EXIT-SUCCESS");
}
