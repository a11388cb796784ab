// Memory that graphs allocate and free: captured cudaMallocAsync, and nodes made by hand, of which
// later ones get the address that an earlier one has freed.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int words = 1 << 14;
const size_t bytes = words * sizeof(int);

__global__ void fill(int *out, int value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void add(int *out, const int *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] += in[i];
}

cudaGraphNode_t kernel(cudaGraph_t graph, cudaGraphNode_t after, void *function, void **arguments) {
    cudaKernelNodeParams node = {};
    node.func = function;
    node.gridDim = dim3(words / 256);
    node.blockDim = dim3(256);
    node.kernelParams = arguments;
    cudaGraphNode_t made;
    CHECK(cudaGraphAddKernelNode(&made, graph, &after, 1, &node));
    return made;
}

// Allocates, fills, adds to `out`, frees; twice, one after the other.
void built(cudaStream_t stream, int *out) {
    cudaGraph_t graph;
    cudaGraphNode_t last = nullptr;
    CHECK(cudaGraphCreate(&graph, 0));
    for (int step = 1; step <= 2; step++) {
        cudaMemAllocNodeParams wanted = {};
        wanted.poolProps.allocType = cudaMemAllocationTypePinned;
        wanted.poolProps.location.type = cudaMemLocationTypeDevice;
        wanted.bytesize = bytes;
        cudaGraphNode_t allocation, release;
        CHECK(cudaGraphAddMemAllocNode(&allocation, graph, &last, step > 1, &wanted));
        int *memory = static_cast<int *>(wanted.dptr);
        void *fill_arguments[] = {&memory, &step}, *add_arguments[] = {&out, &memory};
        last = kernel(graph, allocation, (void *)fill, fill_arguments);
        last = kernel(graph, last, (void *)add, add_arguments);
        CHECK(cudaGraphAddMemFreeNode(&release, graph, &last, 1, memory));
        last = release;
    }
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// The same by capture. The graph does not free the second block: the program does, after each launch.
void captured(cudaStream_t stream, int *out) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int *first, *second, value = 3;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&first, bytes, stream));
    fill<<<words / 256, 256, 0, stream>>>(first, value);
    add<<<words / 256, 256, 0, stream>>>(out, first);
    CHECK(cudaFreeAsync(first, stream));
    CHECK(cudaMallocAsync(&second, bytes, stream));
    CHECK(cudaMemsetAsync(second, 0, bytes, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    int back = -1;
    for (int round = 0; round < 2; round++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(&back, second, sizeof back, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(second, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    printf("cleared: %d\n", back);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main() {
    int *out, back[2];
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&out, bytes));
    CHECK(cudaMemset(out, 0, bytes));
    built(stream, out);
    captured(stream, out);
    CHECK(cudaMemcpy(back, out + words - 2, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d\n", back[0], back[1]);
    CHECK(cudaDeviceGraphMemTrim(0));
    CHECK(cudaFree(out));
    CHECK(cudaStreamDestroy(stream));
    puts("EXIT-SUCCESS");
}
