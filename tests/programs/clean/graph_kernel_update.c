/* Kernel nodes of an executable graph that are changed after instantiation, switched off and on, and
 * updated from another graph. */
#include "program.h"

enum { COUNT = 64 };

static CUdeviceptr memory[3];

/* The parameters of fill(out, value, n) in a node. */
static CUDA_KERNEL_NODE_PARAMS node_params(CUfunction fill, void **parameters)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                     .blockDimX = COUNT, .blockDimY = 1, .blockDimZ = 1,
                                     .kernelParams = parameters};
}

/* Launches, and prints the first number of each memory. */
static void run(const char *label, CUgraphExec executable, CUstream stream, uint32_t first,
                uint32_t second, uint32_t third)
{
    uint32_t values[3];
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemcpyDtoH(&values[i], memory[i], 4));
    show_u32(label, values, 3);
    EXPECT_KERNEL(values[0] == first && values[1] == second && values[2] == third);
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        CHECK(cuMemAlloc(&memory[i], COUNT * 4));
        CHECK(cuMemsetD8(memory[i], 0, COUNT * 4));
    }
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    uint32_t value = 100, count = COUNT;
    void *to_first[] = {&memory[0], &value, &count}, *to_second[] = {&memory[1], &value, &count};
    void *to_third[] = {&memory[2], &value, &count};

    CUgraph graph = NULL;
    CUgraphNode nodes[2];
    CUDA_KERNEL_NODE_PARAMS params = node_params(fill, to_first);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &params));
    params = node_params(fill, to_second);
    CHECK(cuGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &params));
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    run("as made", executable, stream, 100, 100, 0);

    value = 200;
    params = node_params(fill, to_first);
    CHECK(cuGraphExecKernelNodeSetParams(executable, nodes[0], &params));
    CHECK(cuGraphNodeSetEnabled(executable, nodes[1], 0));
    run("one changed, one off", executable, stream, 200, 100, 0);

    value = 300;
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    any.kernel.func = fill;
    any.kernel.gridDimX = any.kernel.gridDimY = any.kernel.gridDimZ = 1;
    any.kernel.blockDimX = COUNT;
    any.kernel.blockDimY = any.kernel.blockDimZ = 1;
    any.kernel.kernelParams = to_third;
    CHECK(cuGraphExecNodeSetParams(executable, nodes[1], &any));
    CHECK(cuGraphNodeSetEnabled(executable, nodes[1], 1));
    run("the other to other memory", executable, stream, 200, 100, 300);

    value = 400;
    params = node_params(fill, to_second);
    CHECK(cuGraphKernelNodeSetParams(nodes[1], &params));
    CUgraphExecUpdateResultInfo information;
    memset(&information, 0, sizeof information);
    CHECK(cuGraphExecUpdate(executable, graph, &information));
    EXPECT(information.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run("updated", executable, stream, 100, 400, 300);

    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuModuleUnload(module));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFree(memory[i]));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
