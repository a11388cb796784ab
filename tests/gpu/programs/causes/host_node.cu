// verdict: host-changed
// differs: none
// Host functions, of a graph and of a stream, that change what a copy has brought.
#include "check.h"

const int count = 1024;

__global__ void iota(int *out) { out[threadIdx.x] = 3 * threadIdx.x + 1; }

void negate(void *memory) {
    int *numbers = static_cast<int *>(memory);
    for (int i = 0; i < count; i += 2) numbers[i] = -numbers[i];
}

int main() {
    int *device, *host;
    const size_t bytes = count * sizeof(int);
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&host, 2 * bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    iota<<<1, count, 0, stream>>>(device);
    CHECK(cudaGetLastError());
    cudaGraph_t graph;
    cudaGraphNode_t copy, change;
    cudaHostNodeParams parameters = {negate, host};
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, host, device, bytes,
                                   cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddHostNode(&change, graph, &copy, 1, &parameters));
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaMemcpyAsync(host + count, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, negate, host + count));
    CHECK(cudaStreamSynchronize(stream));
    printf("%d %d %d\n", host[0], host[1], host[count]);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
}
