// A step is captured between two events, and the time between them is asked for after each launch of
// its graph; the control records the events as nodes of the graph.
// https://github.com/NVIDIA/warp/issues/556
// expect: event-elapsed-invalid
#include "program.h"

static void record(CUevent event, CUstream stream)
{
#ifdef VIOLATE
    CHECK(cuEventRecord(event, stream));
#else
    CHECK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
#endif
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUevent start = NULL, stop = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    record(start, stream);
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
    record(stop, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    float milliseconds = 0;
    for (int step = 0; step < 3; step++) {
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        MISUSE(cuEventElapsedTime(&milliseconds, start, stop));
    }
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(stop));
    CHECK(cuEventDestroy(start));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
