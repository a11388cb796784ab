/* A graph that waits for a value which the program's CPU code writes after later calls. */
#include "program.h"

enum { COUNT = 16, BYTES = COUNT * 4 };

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr result = 0, later = 0;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CUgraphNode node = NULL;
    uint32_t values[COUNT];
    volatile uint32_t *word = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&result, BYTES));
    CHECK(cuMemsetD32(result, 1, COUNT));
    CHECK(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    *word = 0;
    CHECK(cuCtxSynchronize());
    CUstreamBatchMemOpParams operation;
    memset(&operation, 0, sizeof operation);
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = (CUdeviceptr)(uintptr_t)word;
    operation.waitValue.value = 1;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = context, .count = 1, .paramArray = &operation};
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = result, .value = 2, .elementSize = 4, .width = COUNT, .height = 1,
    };
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
    CHECK(cuGraphAddMemsetNode(&node, graph, &node, 1, &set, context));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));

    CHECK(cuMemAlloc(&later, BYTES));
    CHECK(cuMemsetD32(later, 3, COUNT));
    CHECK(cuMemcpyDtoH(values, later, BYTES));
    show_u32("later", values, COUNT);
    *word = 1;
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(values, result, BYTES));
    show_u32("result", values, COUNT);
    EXPECT(values[0] == 2);

    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFreeHost((void *)word));
    CHECK(cuMemFree(later));
    CHECK(cuMemFree(result));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
