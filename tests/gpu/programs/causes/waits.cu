// pending: wait_for_flag
// A kernel that waits for a flag which another thread of the CPU sets while the first one waits for
// the kernel. A replay runs no code of the program, and the recorder does not look at host memory of
// more than 64 MiB, so the kernel never ends there.
#include <chrono>
#include <thread>

#include "check.h"

__global__ void wait_for_flag(volatile int *flag, int *out) {
    while (*flag == 0) {
    }
    *out = *flag;
}

__global__ void follow(int *out) { *out += 1; }

int main() {
    int *flag, *out, back = 0;
    CHECK(cudaHostAlloc(&flag, 80 << 20, cudaHostAllocMapped));
    CHECK(cudaMalloc(&out, sizeof *out));
    *flag = 0;
    wait_for_flag<<<1, 1>>>(flag, out);
    follow<<<1, 1>>>(out);
    CHECK(cudaGetLastError());
    std::thread setter([flag] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        *static_cast<volatile int *>(flag) = 7;
    });
    CHECK(cudaDeviceSynchronize());
    setter.join();
    CHECK(cudaMemcpy(&back, out, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d\n", back);
}
