// The runtime, linked statically: a stream captured into a graph, launched again with changed
// inputs.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void add(float *a, const float *b, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) a[i] += b[i];
}

__global__ void square(float *a, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) a[i] *= a[i];
}

int main() {
    const int count = 1024;
    float *a, *b, host[count];
    CHECK(cudaMalloc(&a, sizeof host));
    CHECK(cudaMalloc(&b, sizeof host));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(a, 0, sizeof host, stream));
    for (int step = 0; step < 3; step++) {
        add<<<4, 256, 0, stream>>>(a, b, count);
        square<<<4, 256, 0, stream>>>(a, count);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++) host[i] = float((i + round) % 3);
        CHECK(cudaMemcpy(b, host, sizeof host, cudaMemcpyHostToDevice));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(host, a, sizeof host, cudaMemcpyDeviceToHost));
        printf("round %d: %.0f %.0f %.0f\n", round, host[0], host[1], host[2]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    puts("EXIT-SUCCESS");
}
