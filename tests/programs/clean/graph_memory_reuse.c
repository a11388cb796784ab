/* A graph that allocates, frees, and allocates again: the driver may give the second allocation the
 * address of the first one. Built from nodes and captured; with the second allocation freed by the
 * graph, or used and freed after the launch. */
#include "program.h"

enum { COUNT = 4096, BYTES = COUNT * 4 };

static uint32_t values[COUNT];
static CUstream stream;
static CUfunction fill;

static CUdeviceptr allocate(CUgraph graph, CUgraphNode *node, CUgraphNode *after)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = BYTES,
    };
    CHECK(cuGraphAddMemAllocNode(node, graph, after, after != NULL, &wanted));
    EXPECT(wanted.dptr != 0);
    return wanted.dptr;
}

/* A kernel and a copy to the host, after `after`; returns the node of the copy. */
static CUgraphNode use(CUgraph graph, CUgraphNode after, CUdeviceptr memory, uint32_t first)
{
    uint32_t count = COUNT;
    CUgraphNode kernel = NULL, copied = NULL;
    void *parameters[] = {&memory, &first, &count};
    CUDA_KERNEL_NODE_PARAMS launched = {
        .func = fill, .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
        .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters,
    };
    CHECK(cuGraphAddKernelNode(&kernel, graph, &after, 1, &launched));
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = values, .WidthInBytes = BYTES,
        .Height = 1, .Depth = 1,
    };
    CHECK(cuGraphAddMemcpyNode(&copied, graph, &kernel, 1, &copy, context));
    return copied;
}

static CUgraph built(int frees_all, CUdeviceptr *kept)
{
    CUgraph graph = NULL;
    CUgraphNode allocated = NULL, freed = NULL, used = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CUdeviceptr first = allocate(graph, &allocated, NULL);
    used = use(graph, allocated, first, 100);
    CHECK(cuGraphAddMemFreeNode(&freed, graph, &used, 1, first));
    *kept = allocate(graph, &allocated, &freed);
    used = use(graph, allocated, *kept, 200);
    if (frees_all)
        CHECK(cuGraphAddMemFreeNode(&freed, graph, &used, 1, *kept));
    return graph;
}

static void capture_use(CUdeviceptr memory, uint32_t first)
{
    uint32_t count = COUNT;
    void *parameters[] = {&memory, &first, &count};
    launch(fill, 4, 128, stream, parameters);
    CHECK(cuMemcpyDtoHAsync(values, memory, BYTES, stream));
}

static CUgraph captured(int frees_all, CUdeviceptr *kept)
{
    CUgraph graph = NULL;
    CUdeviceptr first = 0;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemAllocAsync(&first, BYTES, stream));
    capture_use(first, 100);
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cuMemAllocAsync(kept, BYTES, stream));
    capture_use(*kept, 200);
    if (frees_all)
        CHECK(cuMemFreeAsync(*kept, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int variant = 0; variant < 4; variant++) {
        int frees_all = variant % 2 == 0;
        CUdeviceptr kept = 0;
        CUgraph graph = variant < 2 ? built(frees_all, &kept) : captured(frees_all, &kept);
        CUgraphExec executable = NULL;
        CHECK(cuGraphInstantiate(&executable, graph, 0));
        CHECK(cuGraphDestroy(graph));
        for (int round = 0; round < 2; round++) {
            memset(values, 0, BYTES);
            CHECK(cuGraphLaunch(executable, stream));
            CHECK(cuStreamSynchronize(stream));
            EXPECT_KERNEL(values[1] == 201);
            if (!frees_all) {
                CHECK(cuMemsetD8Async(kept, variant, BYTES, stream));
                CHECK(cuMemcpyDtoHAsync(values, kept, BYTES, stream));
                CHECK(cuMemFreeAsync(kept, stream));
                CHECK(cuStreamSynchronize(stream));
                show_u32("kept", values, COUNT);
            }
        }
        CHECK(cuGraphExecDestroy(executable));
    }
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
