// Asynchronous copies into heap memory that the program uses for something else at once: the bytes
// are complete when the call returns. A host function changes what a copy brought.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int width = 512, height = 64;

__global__ void iota(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 3 * i;
}

void reset(void *memory) { *static_cast<int *>(memory) = 0; }

int main() {
    const size_t bytes = width * height * sizeof(int), row = width * sizeof(int);
    int *device;
    cudaStream_t stream;
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaStreamCreate(&stream));
    iota<<<height, width, 0, stream>>>(device);
    CHECK(cudaGetLastError());
    long sum = 0;
    for (int round = 0; round < 30; round++) {
        int *heap = static_cast<int *>(malloc(bytes));
        if (round % 3 == 0) {
            CHECK(cudaMemcpyAsync(heap, device, bytes, cudaMemcpyDeviceToHost, stream));
        } else if (round % 3 == 1) {
            CHECK(cudaMemcpy2DAsync(heap, row, device, row, row / 2, height,
                                    cudaMemcpyDeviceToHost, stream));
        } else {
            cudaMemcpy3DParms copy = {};
            copy.srcPtr = make_cudaPitchedPtr(device, row, width, height);
            copy.dstPtr = make_cudaPitchedPtr(heap, row, width, height);
            copy.extent = make_cudaExtent(row, height, 1);
            copy.kind = cudaMemcpyDeviceToHost;
            CHECK(cudaMemcpy3DAsync(&copy, stream));
        }
        sum += heap[round];
        memset(heap, 0xaa, bytes);
        free(heap);
    }
    CHECK(cudaStreamSynchronize(stream));
    int *pinned;
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaMemcpyAsync(pinned, device + 1, bytes / 2, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, reset, pinned));
    CHECK(cudaStreamSynchronize(stream));
    printf("%ld %d %d\n", sum, pinned[0], pinned[1]);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
    puts("EXIT-SUCCESS");
}
