/* A graph captured from a stream and one built by hand, each launched several times. */
#include "program.h"

enum { COUNT = 256 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction fill = function_of(module, "fill"), add = function_of(module, "vector_add");
    CUstream stream = NULL;
    CUdeviceptr a = 0, total = 0;
    uint32_t start = 1, count = COUNT, out[COUNT];
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&a, sizeof out));
    CHECK(cuMemAlloc(&total, sizeof out));
    CHECK(cuMemsetD32(a, 0, COUNT));
    CHECK(cuMemsetD32(total, 0, COUNT));
    CHECK(cuCtxSynchronize());
    void *fill_parameters[] = {&a, &start, &count};
    void *add_parameters[] = {&a, &total, &total, &count};

    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    if (!SUPPORTED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)))
        goto give_back;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    launch(fill, 2, 128, stream, fill_parameters);
    CHECK(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode)); /* and back */
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    launch(add, 2, 128, stream, add_parameters);
    CHECK(cuStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    show("captured nodes", nodes);
    EXPECT(nodes == 2);
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++)
        CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(out, total, sizeof out));
    show_u32("three launches", out, COUNT);
    EXPECT_KERNEL(out[0] == 3 && out[COUNT - 1] == 3 * COUNT);
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));

    CUgraphNode clear = NULL, work = NULL;
    CUDA_MEMSET_NODE_PARAMS memset_node = {.dst = total, .value = 7, .elementSize = 4,
                                           .width = COUNT, .height = 1};
    CUDA_KERNEL_NODE_PARAMS kernel_node = {
        .func = add, .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = add_parameters,
    };
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&clear, graph, NULL, 0, &memset_node, context));
    CHECK(cuGraphAddKernelNode(&work, graph, &clear, 1, &kernel_node));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphDestroy(graph)); /* the executable does not need it */
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(out, total, sizeof out));
    show_u32("by hand", out, COUNT);
    EXPECT_KERNEL(out[0] == 8 && out[COUNT - 1] == 7 + COUNT);
    CHECK(cuGraphExecDestroy(executable));

give_back:
    CHECK(cuMemFree(total));
    CHECK(cuMemFree(a));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
