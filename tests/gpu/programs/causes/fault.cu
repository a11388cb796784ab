// cause: stray
// The second of three launches writes to an address that nobody has; the error comes out at the
// synchronisation.
#include "check.h"

__global__ void fill(int *data, int value) { data[threadIdx.x] = value; }
__global__ void stray(int *data) { data[1ull << 40] = 1; }

int main() {
    int *data;
    CHECK(cudaMalloc(&data, 64 * sizeof(int)));
    fill<<<1, 64>>>(data, 1);
    stray<<<1, 1>>>(data);
    fill<<<1, 64>>>(data, 2);
    puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
