// Memory that the CPU and the device share: pinned, mapped, write-combined, registered, managed.
// Copies and memsets that the next call frees.
#include <cstring>
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int words = 4096;
const size_t bytes = words * sizeof(int);

__constant__ int factor;
__device__ __managed__ int total;

__global__ void scale(int *out, const int *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = factor * in[i];
    if (i == 0) total += factor;
}

int main() {
    int *pinned, *mapped, *combined, *managed, *device, *mapped_on_device;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostAlloc(&combined, bytes, cudaHostAllocWriteCombined));
    CHECK(cudaMallocManaged(&managed, bytes));
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaHostGetDevicePointer(&mapped_on_device, mapped, 0));
    int *registered = static_cast<int *>(aligned_alloc(4096, bytes));
    CHECK(cudaHostRegister(registered, bytes, cudaHostRegisterDefault));
    cudaPointerAttributes attributes;
    for (void *memory : {(void *)pinned, (void *)managed, (void *)device, (void *)registered}) {
        CHECK(cudaPointerGetAttributes(&attributes, memory));
        printf("type %d\n", attributes.type);
    }
    total = 1;
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < words; i++) mapped[i] = managed[i] = combined[i] = round * i;
        CHECK(cudaMemcpyToSymbolAsync(factor, &round, sizeof round, 0, cudaMemcpyHostToDevice,
                                      stream));
        CHECK(cudaMemcpyAsync(device, combined, bytes, cudaMemcpyHostToDevice, stream));
        scale<<<words / 256, 256, 0, stream>>>(device, mapped_on_device);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream));
        scale<<<words / 256, 256, 0, stream>>>(managed, mapped_on_device);
        CHECK(cudaMemcpyAsync(registered, device, bytes, cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("%d %d %d %d\n", pinned[words - 1], managed[1], registered[2], total);
        memset(pinned, round, bytes);
    }
    int *cleared;
    CHECK(cudaMalloc(&cleared, bytes));
    CHECK(cudaMemset(cleared, 1, bytes));
    CHECK(cudaFree(cleared));
    CHECK(cudaMalloc(&cleared, bytes));
    CHECK(cudaMemcpy(cleared, pinned, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaFree(cleared));
    CHECK(cudaHostUnregister(registered));
    free(registered);
    CHECK(cudaFree(device));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(combined));
    CHECK(cudaFreeHost(mapped));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
    puts("EXIT-SUCCESS");
}
