// Addresses that no call of the host returns: of device functions, in a table in device memory, and
// of memory that kernels allocate. Managed memory that is prefetched.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int count = 256;

typedef int (*Operation)(int);

__device__ int twice(int x) { return 2 * x; }
__device__ int square(int x) { return x * x; }
__device__ Operation first = twice, second = square;
__device__ int *lists[count];

__global__ void fill(Operation *table, const int *input) {
    int i = threadIdx.x;
    lists[i] = static_cast<int *>(malloc(4 * sizeof(int)));
    for (int k = 0; k < 4; k++) lists[i][k] = table[(i + k) % 2](input[i] + k);
}

__global__ void collect(int *output) {
    int i = threadIdx.x, sum = 0;
    for (int k = 0; k < 4; k++) sum += lists[i][k];
    free(lists[i]);
    output[i] = sum;
}

int main() {
    Operation operations[2], *table;
    CHECK(cudaMemcpyFromSymbol(&operations[0], first, sizeof(Operation)));
    CHECK(cudaMemcpyFromSymbol(&operations[1], second, sizeof(Operation)));
    CHECK(cudaMalloc(&table, sizeof operations));
    CHECK(cudaMemcpy(table, operations, sizeof operations, cudaMemcpyHostToDevice));
    int *input, *output, back[count];
    CHECK(cudaMallocManaged(&input, sizeof back));
    CHECK(cudaMalloc(&output, sizeof back));
    for (int i = 0; i < count; i++) input[i] = i;
    cudaMemLocation device = {};
    device.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPrefetchAsync(input, sizeof back, device, 0, nullptr));
    fill<<<1, count>>>(table, input);
    collect<<<1, count>>>(output);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, output, sizeof back, cudaMemcpyDeviceToHost));
    long sum = 0;
    for (int i = 0; i < count; i++) sum += back[i];
    printf("%d %ld\n", back[1], sum);
    CHECK(cudaFree(output));
    CHECK(cudaFree(input));
    CHECK(cudaFree(table));
    puts("EXIT-SUCCESS");
}
