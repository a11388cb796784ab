// Memory is allocated and used in one branch of a graph. The node that frees it is put behind the
// last node of the other branch, so it may run before the kernel that uses the memory. The control
// puts it behind the last node of its own branch.
// https://github.com/NVIDIA/warp/pull/1419
// expect: graph-allocation-lifetime
#include "program.h"

enum { VALUES = 1024 };

struct branch {
    CUgraphNode last;
};

static CUdeviceptr allocate(CUgraph graph, struct branch *branch)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .accessDescs = &access, .accessDescCount = 1, .bytesize = VALUES * sizeof(uint32_t),
    };
    CUgraphNode before = branch->last;
    CHECK(cuGraphAddMemAllocNode(&branch->last, graph, &before, 1, &wanted));
    return wanted.dptr;
}

static void use(CUgraph graph, struct branch *branch, CUfunction fill, CUdeviceptr memory)
{
    uint32_t start = 1, count = VALUES;
    void *parameters[] = {&memory, &start, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1,
                                      .kernelParams = parameters};
    CUgraphNode before = branch->last;
    CHECK(cuGraphAddKernelNode(&branch->last, graph, &before, 1, &kernel));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUgraph graph = NULL;
    CUgraphNode root = NULL, freed = NULL;
    CUdeviceptr outside = 0;
    CHECK(cuMemAlloc(&outside, VALUES * sizeof(uint32_t)));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    struct branch first = {root}, second = {root};
    use(graph, &first, fill, outside);
    CUdeviceptr memory = allocate(graph, &second);
    use(graph, &second, fill, memory);
#ifdef VIOLATE
    CUgraphNode before = first.last;
#else
    CUgraphNode before = second.last;
#endif
    MISUSE(cuGraphAddMemFreeNode(&freed, graph, &before, 1, memory));
    CUgraphExec executable = NULL;
    if (cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS)
        CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(outside));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
