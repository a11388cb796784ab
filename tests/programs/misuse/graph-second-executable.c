// A graph that allocates memory is instantiated while its first executable graph exists; the control
// destroys that first.
// expect: graph-memory-node-restrictions
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
    CUgraph graph = NULL;
    CUgraphNode allocate = NULL, free_it = NULL;
    CUgraphExec executable = NULL, second = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CUdeviceptr memory = add_allocation(&allocate, graph);
    CHECK(cuGraphAddMemFreeNode(&free_it, graph, &allocate, 1, memory));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
#ifndef VIOLATE
    CHECK(cuGraphExecDestroy(executable));
    executable = NULL;
#endif
    MISUSE(cuGraphInstantiate(&second, graph, 0));
    CHECK(cuGraphExecDestroy(executable != NULL ? executable : second));
    CHECK(cuGraphDestroy(graph));
    end();
    return success();
}
