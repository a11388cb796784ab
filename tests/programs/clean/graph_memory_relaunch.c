/* Graphs that allocate memory and do not free it: it is read and freed after each launch, and the
 * next launch allocates it again. */
#include "program.h"

enum { COUNT = 1024, LAUNCHES = 3 };

static uint32_t out[COUNT];

/* Launches, reads what the graph wrote, and frees it, several times. */
static void run(CUgraph graph, CUdeviceptr memory, CUstream stream, const char *label)
{
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuMemcpyDtoHAsync(out, memory, sizeof out, stream));
        CHECK(cuStreamSynchronize(stream));
        show_u32(label, out, COUNT);
        CHECK(cuMemFreeAsync(memory, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
}

int main(void)
{
    begin();
    int supported = 0;
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
    if (!supported) {
        printf("no memory pools\n");
        end();
        return success();
    }
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    /* Captured. */
    CUgraph graph = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&memory, sizeof out, stream));
    CHECK(cuMemsetD32Async(memory, 7, COUNT, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    run(graph, memory, stream, "captured");

    /* Built. */
    CHECK(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = sizeof out,
    };
    CUgraphNode allocate = NULL, set = NULL;
    CHECK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    CUDA_MEMSET_NODE_PARAMS value = {
        .dst = wanted.dptr,
        .elementSize = 4,
        .value = 9,
        .width = COUNT,
        .height = 1,
    };
    CHECK(cuGraphAddMemsetNode(&set, graph, &allocate, 1, &value, context));
    run(graph, wanted.dptr, stream, "built");

    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
