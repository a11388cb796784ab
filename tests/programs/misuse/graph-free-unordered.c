// The node that frees the memory of a graph has no path from the node that uses it; the control has
// the edge.
// expect: graph-allocation-lifetime
#include "program.h"

static CUdeviceptr add_allocation(CUgraphNode *node, CUgraph graph)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .accessDescs = &access, .accessDescCount = 1, .bytesize = 4096,
    };
    CHECK(cuGraphAddMemAllocNode(node, graph, NULL, 0, &wanted));
    return wanted.dptr;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraph graph = NULL;
    CUgraphNode allocate = NULL, use = NULL, free_it = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CUdeviceptr memory = add_allocation(&allocate, graph);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 4, .width = 16, .height = 1};
    CHECK(cuGraphAddMemsetNode(&use, graph, &allocate, 1, &set, context));
#ifdef VIOLATE
    CHECK(cuGraphAddMemFreeNode(&free_it, graph, &allocate, 1, memory));
#else
    CHECK(cuGraphAddMemFreeNode(&free_it, graph, &use, 1, memory));
#endif
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
