// verdict: nondeterministic
// differs: read_clock
// A kernel that returns clocks.
#include "check.h"

__global__ void read_clock(long long *out) { out[threadIdx.x] = clock64(); }

int main() {
    long long *out, back[64];
    CHECK(cudaMalloc(&out, sizeof back));
    read_clock<<<1, 64>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    puts(back[0] > 0 ? "ticks" : "none");
    CHECK(cudaFree(out));
}
