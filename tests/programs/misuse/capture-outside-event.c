// A capturing stream waits for an event from outside; the control orders the graph's launch behind
// that event.
// expect: stream-capture-cross-dependency
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8Async(memory, 1, 4096, second));
    CHECK(cuEventRecord(event, second));
    CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
#ifdef VIOLATE
    EXPECT(cuStreamWaitEvent(first, event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    (void)cuStreamEndCapture(first, &graph);
#else
    CUgraphExec exec = NULL;
    CHECK(cuMemsetD8Async(memory, 2, 4096, first));
    CHECK(cuStreamEndCapture(first, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuStreamWaitEvent(first, event, 0));
    CHECK(cuGraphLaunch(exec, first));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
#endif
    CHECK(cuStreamSynchronize(second));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
