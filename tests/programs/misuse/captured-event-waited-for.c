// The end of a captured step is waited for by the event that was recorded during the capture; the
// control records the event behind each launch of the graph.
// https://github.com/NVIDIA/warp/issues/983
// expect: stream-capture-wait-on-captured
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUevent done = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
    CHECK(cuEventRecord(done, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
#ifndef VIOLATE
    CHECK(cuEventRecord(done, stream));
#endif
    MISUSE(cuEventSynchronize(done));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(done));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
