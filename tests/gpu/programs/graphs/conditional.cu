// nvcc: -rdc=true -lcudadevrt
// Conditional nodes of which kernels of the graph set the condition: one of two bodies, a body that is
// repeated, one of several; between other nodes, and in a graph that allocates memory.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int words = 256;
const size_t bytes = words * sizeof(int);

__global__ void add(int *out, int value) { out[threadIdx.x] += value; }

// The condition is what a number in memory says.
__global__ void decide(cudaGraphConditionalHandle handle, const int *in, int limit) {
    if (threadIdx.x == 0) cudaGraphSetConditional(handle, in[0] < limit);
}

__global__ void choose(cudaGraphConditionalHandle handle, const int *in) {
    if (threadIdx.x == 0) cudaGraphSetConditional(handle, in[0] % 3);
}

cudaGraphNode_t kernel(cudaGraph_t graph, cudaGraphNode_t after, void *function, void **arguments) {
    cudaKernelNodeParams node = {};
    node.func = function;
    node.gridDim = dim3(1);
    node.blockDim = dim3(words);
    node.kernelParams = arguments;
    cudaGraphNode_t made;
    CHECK(cudaGraphAddKernelNode(&made, graph, after ? &after : nullptr, after != nullptr, &node));
    return made;
}

cudaGraphNode_t added(cudaGraph_t graph, cudaGraphNode_t after, int *out, int value) {
    void *arguments[] = {&out, &value};
    return kernel(graph, after, (void *)add, arguments);
}

// A node with bodies, after another node; the bodies.
cudaGraph_t *bodies(cudaGraph_t graph, cudaGraphNode_t *last, cudaGraphConditionalHandle handle,
                    cudaGraphConditionalNodeType type, unsigned count) {
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = count;
    cudaGraphNode_t after = *last;
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphAddNode(last, graph, &after, nullptr, 1, &params));
#else
    CHECK(cudaGraphAddNode(last, graph, &after, 1, &params));
#endif
    return params.conditional.phGraph_out;
}

void run(const char *name, cudaGraph_t graph, int *out) {
    cudaGraphExec_t exec;
    int values[words];
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemset(out, 0, bytes));
    for (int round = 0; round < 3; round++) {
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaMemcpy(values, out, bytes, cudaMemcpyDeviceToHost));
        printf("%s: %d\n", name, values[words - 1]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

cudaGraphConditionalHandle handle_of(cudaGraph_t graph) {
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault));
    return handle;
}

int main() {
    int *out, limit;
    cudaGraph_t graph;
    CHECK(cudaMalloc(&out, bytes));

    // The body runs in the first launch alone.
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = handle_of(graph);
    cudaGraphNode_t last = added(graph, nullptr, out, 1);
    limit = 2;
    void *decided[] = {&handle, &out, &limit};
    last = kernel(graph, last, (void *)decide, decided);
    added(*bodies(graph, &last, handle, cudaGraphCondTypeIf, 1), nullptr, out, 10);
    added(graph, last, out, 100);
    run("if", graph, out);

    // The body runs until the number is large enough, in memory that the graph allocates too.
    CHECK(cudaGraphCreate(&graph, 0));
    handle = handle_of(graph);
    cudaMemAllocNodeParams wanted = {};
    wanted.poolProps.allocType = cudaMemAllocationTypePinned;
    wanted.poolProps.location.type = cudaMemLocationTypeDevice;
    wanted.bytesize = bytes;
    CHECK(cudaGraphAddMemAllocNode(&last, graph, nullptr, 0, &wanted));
    int *memory = static_cast<int *>(wanted.dptr);
    cudaMemsetParams zeros = {};
    zeros.dst = memory;
    zeros.elementSize = 4;
    zeros.width = words;
    zeros.height = 1;
    cudaGraphNode_t set;
    CHECK(cudaGraphAddMemsetNode(&set, graph, &last, 1, &zeros));
    limit = 5;
    void *repeated[] = {&handle, &memory, &limit};
    last = kernel(graph, set, (void *)decide, repeated);
    cudaGraph_t body = *bodies(graph, &last, handle, cudaGraphCondTypeWhile, 1);
    cudaGraphNode_t inner = added(body, nullptr, memory, 1);
    inner = added(body, inner, out, 7);
    kernel(body, inner, (void *)decide, repeated);
    CHECK(cudaGraphAddMemFreeNode(&last, graph, &last, 1, memory));
    run("while", graph, out);

#if CUDART_VERSION >= 12080
    CHECK(cudaGraphCreate(&graph, 0));
    handle = handle_of(graph);
    last = added(graph, nullptr, out, 1);
    void *chosen[] = {&handle, &out};
    last = kernel(graph, last, (void *)choose, chosen);
    cudaGraph_t *three = bodies(graph, &last, handle, cudaGraphCondTypeSwitch, 3);
    for (int body = 0; body < 3; body++) added(three[body], nullptr, out, 10 * body);
    added(graph, last, out, 100);
    run("switch", graph, out);
#endif
    CHECK(cudaFree(out));
    printf("done\n");
}
