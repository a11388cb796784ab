// Copies and kernels in a ring of streams: one uploads while another computes and a third downloads.
// Waits with cudaDeviceSynchronize, as NVIDIA's simpleMultiCopy does.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int streams = 4, words = 1 << 16, rounds = 10;

__global__ void increment(int *out, const int *in, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] + 1;
}

struct Slot {
    int *host_in, *host_out, *device_in, *device_out;
    cudaStream_t stream;
    cudaEvent_t done;
};

int main() {
    const size_t bytes = words * sizeof(int);
    Slot slots[streams];
    for (int s = 0; s < streams; s++) {
        Slot &slot = slots[s];
        CHECK(cudaHostAlloc(&slot.host_in, bytes, cudaHostAllocDefault));
        CHECK(cudaMalloc(&slot.device_in, bytes));
        CHECK(cudaMemset(slot.device_in, 0, bytes));
        CHECK(cudaHostAlloc(&slot.host_out, bytes, cudaHostAllocDefault));
        CHECK(cudaMalloc(&slot.device_out, bytes));
        CHECK(cudaMemset(slot.device_out, 0, bytes));
        CHECK(cudaStreamCreate(&slot.stream));
        CHECK(cudaEventCreate(&slot.done));
        CHECK(cudaEventRecord(slot.done, slot.stream));
        for (int i = 0; i < words; i++) slot.host_in[i] = 100 * s + i % 7, slot.host_out[i] = 0;
    }
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventRecord(start, 0));
    for (int round = 0, current = 0; round < rounds; round++) {
        int next = (current + 1) % streams;
        Slot &now = slots[current], &then = slots[next];
        // What the slot downloaded last is there, before it is written again.
        CHECK(cudaEventSynchronize(now.done));
        increment<<<words / 512, 512, 0, now.stream>>>(now.device_out, now.device_in, words);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(then.device_in, then.host_in, bytes, cudaMemcpyHostToDevice,
                              then.stream));
        CHECK(cudaMemcpyAsync(now.host_out, now.device_out, bytes, cudaMemcpyDeviceToHost,
                              now.stream));
        CHECK(cudaEventRecord(now.done, now.stream));
        current = next;
    }
    CHECK(cudaEventRecord(stop, 0));
    CHECK(cudaDeviceSynchronize());
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    long sum = 0;
    for (Slot &slot : slots) {
        for (int i = 0; i < words; i++) sum += slot.host_out[i];
    }
    printf("%ld %s\n", sum, milliseconds >= 0 ? "measured" : "not measured");
    for (Slot &slot : slots) {
        CHECK(cudaFreeHost(slot.host_in));
        CHECK(cudaFreeHost(slot.host_out));
        CHECK(cudaFree(slot.device_in));
        CHECK(cudaFree(slot.device_out));
        CHECK(cudaStreamDestroy(slot.stream));
        CHECK(cudaEventDestroy(slot.done));
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    puts("EXIT-SUCCESS");
}
