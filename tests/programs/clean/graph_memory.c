/* Graphs that allocate and free memory, write values, and do work under a condition. */
#include "program.h"

enum { COUNT = 128 };

static uint32_t source[COUNT], target[COUNT];

static CUDA_MEMCPY3D linear(CUmemorytype from, const void *host_from, CUdeviceptr device_from,
                            CUmemorytype to, void *host_to, CUdeviceptr device_to, size_t size)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = from, .srcHost = host_from, .srcDevice = device_from, .dstMemoryType = to,
        .dstHost = host_to,
        .dstDevice = device_to, .WidthInBytes = size, .Height = 1, .Depth = 1,
    };
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof source));
    CHECK(cuMemsetD8(memory, 0, sizeof source));
    CHECK(cuCtxSynchronize());

    /* Memory that the graph allocates: copied in, copied out, freed. */
    CUgraph graph = NULL;
    CUgraphNode allocate = NULL, in = NULL, out = NULL, end_of_it = NULL;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .accessDescs = &access, .accessDescCount = 1, .bytesize = sizeof source,
    };
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    EXPECT(wanted.dptr != 0);
    CUDA_MEMCPY3D copy = linear(CU_MEMORYTYPE_HOST, source, 0, CU_MEMORYTYPE_DEVICE, NULL,
                                wanted.dptr, sizeof source);
    CHECK(cuGraphAddMemcpyNode(&in, graph, &allocate, 1, &copy, context));
    copy = linear(CU_MEMORYTYPE_DEVICE, NULL, wanted.dptr, CU_MEMORYTYPE_HOST, target, 0,
                  sizeof target);
    CHECK(cuGraphAddMemcpyNode(&out, graph, &in, 1, &copy, context));
    CHECK(cuGraphAddMemFreeNode(&end_of_it, graph, &out, 1, wanted.dptr));
    CUDA_MEM_ALLOC_NODE_PARAMS asked;
    CUdeviceptr freed = 0;
    CHECK(cuGraphMemAllocNodeGetParams(allocate, &asked));
    CHECK(cuGraphMemFreeNodeGetParams(end_of_it, &freed));
    EXPECT(asked.dptr == wanted.dptr && asked.bytesize == sizeof source && freed == wanted.dptr);
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    for (uint32_t round = 1; round <= 2; round++) {
        for (uint32_t i = 0; i < COUNT; i++)
            source[i] = round * i;
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        EXPECT(memcmp(source, target, sizeof source) == 0);
        show_u32("through the graph's memory", target, COUNT);
    }
    /* How much memory the driver keeps for the next launch is not specified. */
    cuuint64_t used = 0;
    CHECK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuDeviceGraphMemTrim(device));

    /* Values written by a node, another node under a condition that holds, and one under a
     * condition that does not. */
    CUgraphNode write = NULL, nodes[2];
    CUgraphConditionalHandle holds = 0, fails = 0;
    CUstreamBatchMemOpParams operations[2];
    memset(operations, 0, sizeof operations);
    operations[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[0].writeValue.address = memory;
    operations[0].writeValue.value = 11;
    operations[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operations[1].writeValue.address = memory + 8;
    operations[1].writeValue.value64 = 12;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = context, .count = 2, .paramArray = operations};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddBatchMemOpNode(&write, graph, NULL, 0, &batch));
    CHECK(cuGraphConditionalHandleCreate(&holds, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CHECK(cuGraphConditionalHandleCreate(&fails, graph, context, 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
    for (int i = 0; i < 2; i++) {
        CUgraphNodeParams condition = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
        condition.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){
            .handle = i == 0 ? holds : fails, .type = CU_GRAPH_COND_TYPE_IF, .size = 1,
            .ctx = context,
        };
        CHECK(cuGraphAddNode(&nodes[i], graph, &write, NULL, 1, &condition));
        CUDA_MEMSET_NODE_PARAMS set = {.dst = memory + 64 + 64 * (unsigned)i, .value = 7,
                                       .elementSize = 4, .width = 16, .height = 1};
        CUgraphNode inside = NULL;
        CHECK(cuGraphAddMemsetNode(&inside, condition.conditional.phGraph_out[0], NULL, 0, &set,
                                   context));
    }
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(target, memory, sizeof target));
    show_u32("written and set", target, COUNT);
    EXPECT(target[0] == 11 && target[2] == 12 && target[16] == 7 && target[31] == 7
           && target[32] == 0);
    CHECK(cuGraphExecDestroy(executable));

    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
