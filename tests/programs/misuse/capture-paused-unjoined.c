// The capture of a stream is paused to add a loop to its graph, which ends the capture while work
// on a sibling stream is not joined yet. The control lets the first stream wait for the sibling
// before the pause.
// https://github.com/NVIDIA/warp/issues/1469
// expect: stream-capture-unjoined
#include "program.h"

struct capture {
    CUstream first, sibling;
    CUevent forked, done;
};

static void fork_to_sibling(const struct capture *capture, CUdeviceptr memory)
{
    CHECK(cuEventRecord(capture->forked, capture->first));
    CHECK(cuStreamWaitEvent(capture->sibling, capture->forked, 0));
    CHECK(cuMemsetD8Async(memory, 1, 4096, capture->sibling));
    CHECK(cuEventRecord(capture->done, capture->sibling));
}

static CUresult pause_capture(const struct capture *capture, CUgraph *graph)
{
#ifndef VIOLATE
    CHECK(cuStreamWaitEvent(capture->first, capture->done, 0));
#endif
    return cuStreamEndCapture(capture->first, graph);
}

int main(void)
{
    begin();
    struct capture capture;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&capture.first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&capture.sibling, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&capture.forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&capture.done, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 8192));
    CHECK(cuStreamBeginCapture(capture.first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD8Async(memory, 0, 4096, capture.first));
    fork_to_sibling(&capture, memory + 4096);
    if (pause_capture(&capture, &graph) == CUDA_SUCCESS)
        CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(capture.done));
    CHECK(cuEventDestroy(capture.forked));
    CHECK(cuStreamDestroy(capture.sibling));
    CHECK(cuStreamDestroy(capture.first));
    end();
    return success();
}
