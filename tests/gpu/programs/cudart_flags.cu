// Kernels that wait for values which the CPU writes into pinned memory by plain stores: just before
// it waits for the device, and from another thread meanwhile.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void wait_for(volatile int *flag, int value, int *out) {
    while (*flag != value) {
    }
    *out += value;
}

int main() {
    int *flag, *out, back = 0;
    CHECK(cudaHostAlloc(&flag, 4096, cudaHostAllocMapped));
    CHECK(cudaMalloc(&out, sizeof *out));
    CHECK(cudaMemset(out, 0, sizeof *out));
    CHECK(cudaDeviceSynchronize());
    *flag = 0;
    for (int round = 1; round <= 20; round++) {
        wait_for<<<1, 1>>>(flag, round, out);
        CHECK(cudaGetLastError());
        if (round % 2 == 0) {
            *static_cast<volatile int *>(flag) = round;
            CHECK(cudaDeviceSynchronize());
        } else {
            std::thread setter([=] {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
                *static_cast<volatile int *>(flag) = round;
            });
            CHECK(cudaDeviceSynchronize());
            setter.join();
        }
    }
    CHECK(cudaMemcpy(&back, out, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d\n", back);
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(flag));
    puts("EXIT-SUCCESS");
}
