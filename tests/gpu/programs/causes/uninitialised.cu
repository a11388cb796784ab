// verdict: uninitialised-read
// differs: none
// A kernel that adds to memory which nobody has set.
#include "check.h"

__global__ void increment(int *data) { data[threadIdx.x] += 1; }

int main() {
    int *data, back[64];
    CHECK(cudaMalloc(&data, sizeof back));
    increment<<<1, 64>>>(data);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, data, sizeof back, cudaMemcpyDeviceToHost));
    puts("read");
    CHECK(cudaFree(data));
}
