// Host memory that kernels read where it is, mapped and managed: no call says what the program
// writes there.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int count = 1024;

__global__ void add(const int *mapped, const int *managed, int *out) {
    int i = threadIdx.x;
    out[i] = mapped[i] + managed[i];
}

int main() {
    int *mapped, *managed, *out, back[count];
    CHECK(cudaHostAlloc(&mapped, sizeof back, cudaHostAllocMapped));
    CHECK(cudaMallocManaged(&managed, sizeof back));
    CHECK(cudaMalloc(&out, sizeof back));
    for (int i = 0; i < count; i++) mapped[i] = i, managed[i] = 3 * i;
    add<<<1, count>>>(mapped, managed, out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d\n", back[1], back[count - 1]);
    CHECK(cudaFree(out));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(mapped));
    puts("EXIT-SUCCESS");
}
