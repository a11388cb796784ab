/* Captures: copies in both directions, a fork and a join with events, host functions, graphs inside
 * captures, a capture into an existing graph, memory that the graph allocates. */
#include "program.h"

enum { COUNT = 512 };

static uint32_t source[COUNT], target[COUNT], rows[4][8], square[4][4];

static void count_up(void *data)
{
    ++*(int *)data;
}

static void fill_source(uint32_t start)
{
    for (uint32_t i = 0; i < COUNT; i++)
        source[i] = start + i;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    CHECK(cuStreamIsCapturing(stream, &status));
    return status;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    return executable;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL, side = NULL;
    CUevent forked = NULL, joined = NULL;
    CUdeviceptr a = 0, b = 0;
    uint32_t start = 9, count = COUNT, *pinned = NULL;
    int called = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&a, sizeof source));
    CHECK(cuMemAlloc(&b, sizeof source));
    CHECK(cuMemHostAlloc((void **)&pinned, sizeof source, 0));
    memset(pinned, 0, sizeof source);
    void *parameters[] = {&b, &start, &count};

    /* Copies on one stream, work on another one, and back together. */
    CUgraph graph = NULL;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemcpyHtoDAsync(a, source, sizeof source, stream));
    CHECK(cuEventRecord(forked, stream));
    CHECK(cuStreamWaitEvent(side, forked, 0));
    EXPECT(status_of(side) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(cuMemsetD32Async(b, 3, COUNT, side));
    launch(fill, 4, 128, side, parameters);
    CHECK(cuEventRecord(joined, side));
    CHECK(cuMemcpyDtoHAsync(target, a, sizeof target, stream));
    CHECK(cuStreamWaitEvent(stream, joined, 0));
    CHECK(cuMemcpyDtoHAsync(pinned, b, sizeof source, stream));
    CUDA_MEMCPY2D plane = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = 16,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = rows, .dstPitch = sizeof rows[0], .WidthInBytes = 16, .Height = 4,
    };
    CHECK(cuMemcpy2DAsync(&plane, stream));
    CHECK(cuLaunchHostFunc(stream, count_up, &called));
    CHECK(cuStreamEndCapture(stream, &graph));
    EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE
           && status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT(called == 0);
    size_t number = 0;
    CHECK(cuGraphGetNodes(graph, NULL, &number));
    show("captured", number);
    EXPECT(number == 7);
    CUgraphExec executable = instantiate(graph);
    for (uint32_t round = 0; round < 3; round++) {
        fill_source(1000 * round);
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        EXPECT(memcmp(target, source, sizeof source) == 0);
        EXPECT(memcmp(rows[1], source + 4, 16) == 0 && rows[1][4] == 0);
        EXPECT_KERNEL(pinned[5] == 14);
        show_u32("target", target, COUNT);
    }
    EXPECT(called == 3);

    /* Two launches before a wait. */
    fill_source(5);
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(target, source, sizeof source) == 0);
    EXPECT(called == 5);

    /* A capture into an existing graph, with its dependencies queried and changed. */
    CUgraph shared = NULL, given = NULL;
    CUgraphNode first = NULL;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = b, .value = 1, .elementSize = 4, .width = COUNT,
                                   .height = 1};
    CHECK(cuGraphCreate(&shared, 0));
    CHECK(cuGraphAddMemsetNode(&first, shared, NULL, 0, &set, context));
    CHECK(cuStreamBeginCaptureToGraph(stream, shared, &first, NULL, 1,
                                      CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD32Async(b + 64, 2, 16, stream));
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *data = NULL;
    CHECK(cuStreamGetCaptureInfo(stream, &status, &id, &given, &nodes, &data, &number));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && given == shared && number == 1
           && nodes[0] != first);
    CUgraphNode both[] = {nodes[0], first}, later = NULL;
    set.dst = a, set.width = 16;
    CHECK(cuGraphAddMemsetNode(&later, shared, both, 1, &set, context));
    CHECK(cuStreamUpdateCaptureDependencies(stream, &later, NULL, 1,
                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    CHECK(cuMemcpyDtoHAsync(square, b, sizeof square, stream));
    CHECK(cuStreamEndCapture(stream, &given));
    EXPECT(given == shared);
    CUgraphExec continued = instantiate(shared);
    CHECK(cuGraphLaunch(continued, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(square[0][0] == 1 && square[3][3] == 1);

    /* Memory that the graph allocates. */
    CUgraph allocating = NULL;
    CUdeviceptr own = 0;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemAllocAsync(&own, sizeof source, stream));
    CHECK(cuMemcpyHtoDAsync(own, source, sizeof source, stream));
    CHECK(cuMemcpyDtoHAsync(pinned, own, sizeof source, stream));
    CHECK(cuMemFreeAsync(own, stream));
    CHECK(cuStreamEndCapture(stream, &allocating));
    CUgraphExec owner = instantiate(allocating);
    fill_source(77);
    CHECK(cuGraphLaunch(owner, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(pinned, source, sizeof source) == 0);
    CHECK(cuDeviceGraphMemTrim(device));

    CUgraphExec all[] = {executable, continued, owner};
    for (int i = 0; i < 3; i++)
        CHECK(cuGraphExecDestroy(all[i]));
    CUgraph graphs[] = {graph, shared, allocating};
    for (int i = 0; i < 3; i++)
        CHECK(cuGraphDestroy(graphs[i]));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(b));
    CHECK(cuMemFree(a));
    CHECK(cuEventDestroy(joined));
    CHECK(cuEventDestroy(forked));
    CHECK(cuStreamDestroy(side));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
