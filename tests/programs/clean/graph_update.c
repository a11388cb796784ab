/* Executable graphs that are changed: single nodes, nodes switched off, a whole update, one that
 * does not fit; user objects. */
#include "program.h"

enum { COUNT = 64 };

static uint32_t source[2][COUNT], target[2][COUNT];

static void count_up(void *data)
{
    __atomic_add_fetch((int *)data, 1, __ATOMIC_SEQ_CST);
}

static CUDA_MEMCPY3D copy_in(CUdeviceptr memory, const void *host)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = memory,
        .WidthInBytes = sizeof source[0], .Height = 1, .Depth = 1,
    };
}

static CUDA_MEMCPY3D copy_out(void *host, CUdeviceptr memory)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host,
        .WidthInBytes = sizeof source[0], .Height = 1, .Depth = 1,
    };
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof source[0]));
    for (uint32_t i = 0; i < COUNT; i++) {
        source[0][i] = i;
        source[1][i] = 1000 + i;
    }

    CUgraph graph = NULL;
    CUgraphNode nodes[3];
    CUDA_MEMCPY3D copy = copy_in(memory, source[0]);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(&nodes[0], graph, NULL, 0, &copy, context));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .value = 1, .elementSize = 4, .width = 4,
                                   .height = 1};
    CHECK(cuGraphAddMemsetNode(&nodes[1], graph, &nodes[0], 1, &set, context));
    CUgraphNodeParams out = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    out.memcpy.copyCtx = context;
    out.memcpy.copyParams = copy_out(target[0], memory);
    CHECK(cuGraphAddNode(&nodes[2], graph, &nodes[1], NULL, 1, &out));
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    show_u32("as made", target[0], COUNT);
    EXPECT(target[0][3] == 1 && target[0][4] == 4);

    /* Other host memory at both ends, and another value. */
    copy = copy_in(memory, source[1]);
    CHECK(cuGraphExecMemcpyNodeSetParams(executable, nodes[0], &copy, context));
    set.value = 2;
    CHECK(cuGraphExecMemsetNodeSetParams(executable, nodes[1], &set, context));
    out.memcpy.copyParams = copy_out(target[1], memory);
    CHECK(cuGraphExecNodeSetParams(executable, nodes[2], &out));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    show_u32("nodes changed", target[1], COUNT);
    EXPECT(target[1][3] == 2 && target[1][4] == 1004 && target[0][4] == 4);

    /* The memset switched off and on again. */
    unsigned enabled = 1;
    CHECK(cuGraphNodeSetEnabled(executable, nodes[1], 0));
    CHECK(cuGraphNodeGetEnabled(executable, nodes[1], &enabled));
    EXPECT(enabled == 0);
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    show_u32("switched off", target[1], COUNT);
    EXPECT(target[1][3] == 1003);
    CHECK(cuGraphNodeSetEnabled(executable, nodes[1], 1));

    /* The graph itself, changed, and the executable graph updated from it. */
    CHECK(cuGraphMemcpyNodeSetParams(nodes[0], &(CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source[0],
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory,
        .WidthInBytes = sizeof source[0], .Height = 1, .Depth = 1}));
    out.memcpy.copyParams = copy_out(target[0], memory);
    CHECK(cuGraphNodeSetParams(nodes[2], &out));
    CUgraphExecUpdateResultInfo information;
    memset(&information, 0, sizeof information);
    CHECK(cuGraphExecUpdate(executable, graph, &information));
    EXPECT(information.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    source[0][9] = 99;
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    show_u32("updated", target[0], COUNT);
    EXPECT(target[0][3] == 1 && target[0][9] == 99);

    /* A destructor that runs when the last reference is released. */
    CUuserObject object = NULL;
    int destroyed = 0;
    CHECK(cuUserObjectCreate(&object, &destroyed, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK(cuUserObjectRetain(object, 1));
    CHECK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK(cuGraphReleaseUserObject(graph, object, 1));
    EXPECT(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == 0);
    CHECK(cuUserObjectRelease(object, 1));

    char path[64];
    write_temporary(path, "", 0);
    CHECK(cuGraphDebugDotPrint(graph, path, 0));
    unlink(path);

    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    for (int i = 0; i < 1000 && __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == 0; i++)
        usleep(1000);
    EXPECT(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == 1);
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
