/* Nodes that only their graph can run: memory that is used in it or outlives the launch, in a child
 * graph too; bodies that a condition selects; operations that wait for what a parallel node writes. */
#include "program.h"

enum { COUNT = 64, BYTES = COUNT * 4 };

static CUstream stream;
static CUdeviceptr result;
static uint32_t values[COUNT];

static CUdeviceptr allocate(CUgraph graph, CUgraphNode *node, CUgraphNode *after)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = BYTES,
    };
    CHECK(cuGraphAddMemAllocNode(node, graph, after, after != NULL, &wanted));
    return wanted.dptr;
}

static CUgraphNode set(CUgraph graph, CUgraphNode *after, CUdeviceptr memory, uint32_t value)
{
    CUgraphNode node = NULL;
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = memory, .value = value, .elementSize = 4, .width = COUNT, .height = 1,
    };
    CHECK(cuGraphAddMemsetNode(&node, graph, after, after != NULL, &params, context));
    return node;
}

static CUgraphNode copy(CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from)
{
    CUgraphNode node = NULL;
    CUDA_MEMCPY3D params = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .WidthInBytes = BYTES,
        .Height = 1, .Depth = 1,
    };
    CHECK(cuGraphAddMemcpyNode(&node, graph, &after, 1, &params, context));
    return node;
}

/* Launches a graph twice and shows the result. `kept` is freed after each launch. */
static void run(CUgraph graph, CUdeviceptr kept, const char *label)
{
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuMemsetD8Async(result, 0, BYTES, stream));
        CHECK(cuGraphLaunch(executable, stream));
        if (kept)
            CHECK(cuMemcpyDtoDAsync(result, kept, BYTES / 2, stream));
        CHECK(cuMemcpyDtoHAsync(values, result, BYTES, stream));
        if (kept)
            CHECK(cuMemFreeAsync(kept, stream));
        CHECK(cuStreamSynchronize(stream));
        show_u32(label, values, COUNT);
    }
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
}

/* Memory that the graph frees, and memory that outlives the launch. */
static void memory(void)
{
    CUgraph graph = NULL;
    CUgraphNode node = NULL, freed = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CUdeviceptr used = allocate(graph, &node, NULL);
    node = set(graph, &node, used, 5);
    node = copy(graph, node, result, used);
    CHECK(cuGraphAddMemFreeNode(&freed, graph, &node, 1, used));
    CUdeviceptr kept = allocate(graph, &node, &node);
    set(graph, &node, kept, 6);
    run(graph, kept, "memory");
}

/* A child graph with memory of its own, between nodes of its parent. */
static void child(void)
{
    CUgraph graph = NULL, inner = NULL;
    CUgraphNode node = NULL, freed = NULL;
    CHECK(cuGraphCreate(&inner, 0));
    CUdeviceptr used = allocate(inner, &node, NULL);
    node = set(inner, &node, used, 7);
    node = copy(inner, node, result, used);
    CHECK(cuGraphAddMemFreeNode(&freed, inner, &node, 1, used));
    CHECK(cuGraphCreate(&graph, 0));
    CUgraphNode before = set(graph, NULL, result, 1);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    params.graph.graph = inner;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (!SUPPORTED(cuGraphAddNode(&node, graph, &before, NULL, 1, &params))) {
        CHECK(cuGraphDestroy(inner));
        CHECK(cuGraphDestroy(graph));
        return;
    }
    set(graph, &node, result + BYTES / 2, 8);
    (void)node;
    run(graph, 0, "child graph");
}

/* One of three bodies, and nodes before and after them. */
static void condition(void)
{
    CUgraph graph = NULL;
    CUgraphConditionalHandle handle = 0;
    CUgraphNode node = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    node = set(graph, NULL, result, 9);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){
        .handle = handle, .type = CU_GRAPH_COND_TYPE_SWITCH, .size = 3, .ctx = context,
    };
    CHECK(cuGraphAddNode(&node, graph, &node, NULL, 1, &params));
    for (unsigned body = 0; body < 3; body++)
        set(params.conditional.phGraph_out[body], NULL, result, 10 + body);
    run(graph, 0, "condition");
}

/* Operations that wait for a value which a later, parallel node writes. */
static void wait_for_value(void)
{
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    uint32_t *word = NULL;
    CUstreamBatchMemOpParams operation;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = context, .count = 1, .paramArray = &operation};
    CHECK(cuMemHostAlloc((void **)&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    *word = 0;
    CHECK(cuGraphCreate(&graph, 0));
    memset(&operation, 0, sizeof operation);
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = (CUdeviceptr)(uintptr_t)word;
    operation.waitValue.value = 13;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
    set(graph, &node, result, 14);
    memset(&operation, 0, sizeof operation);
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = (CUdeviceptr)(uintptr_t)word;
    operation.writeValue.value = 13;
    CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
    run(graph, 0, "waited for");
    CHECK(cuMemFreeHost(word));
}

int main(void)
{
    begin();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&result, 2 * BYTES));
    memory();
    child();
    condition();
    wait_for_value();
    CHECK(cuMemFree(result));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
