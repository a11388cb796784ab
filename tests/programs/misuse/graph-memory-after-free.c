// A memset of memory that the graph has freed; the control leaves the free to the program.
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
    CUgraphNode allocate = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CUdeviceptr memory = add_allocation(&allocate, graph);
#ifdef VIOLATE
    CUgraphNode free_it = NULL;
    CHECK(cuGraphAddMemFreeNode(&free_it, graph, &allocate, 1, memory));
#endif
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    MISUSE(cuMemsetD8Async(memory, 0, 1024, stream));
#ifndef VIOLATE
    CHECK(cuMemFreeAsync(memory, stream));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
