// verdict: nondeterministic
// differs: add
// Sums of floats by atomics: the order of the additions changes from run to run.
#include "check.h"

const int sums = 64, blocks = 512, threads = 256;

__global__ void add(float *sum) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < sums; k++)
        atomicAdd(&sum[k], 1.0f / float(1 + (i * 37 + k * 101) % 9973));
}

int main() {
    float *sum, back[sums];
    CHECK(cudaMalloc(&sum, sizeof back));
    CHECK(cudaMemset(sum, 0, sizeof back));
    add<<<blocks, threads>>>(sum);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, sum, sizeof back, cudaMemcpyDeviceToHost));
    printf("%.1f\n", back[0]);
    CHECK(cudaFree(sum));
}
