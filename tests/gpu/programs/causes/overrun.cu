// sanitizer: overrun
// A kernel that writes four bytes behind the end of an allocation, in front of the next one.
#include "check.h"

__global__ void overrun(int *data, int count) {
    int i = threadIdx.x;
    if (i <= count) data[i] = i;
}

int main() {
    const int count = 100;
    int *first, *second, back[count];
    CHECK(cudaMalloc(&first, sizeof back));
    CHECK(cudaMalloc(&second, sizeof back));
    CHECK(cudaMemset(second, 0, sizeof back));
    overrun<<<1, 128>>>(first, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, second, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d\n", back[0]);
    CHECK(cudaFree(second));
    CHECK(cudaFree(first));
}
