// The output of a graph is copied by another stream, and the next launch of the graph overwrites it
// while that copy may still run: https://github.com/sgl-project/sglang-omni/pull/1369. The control
// lets the graph's stream wait for the copy.
// expect: memory-race-cross-stream
#include "program.h"

enum { BYTES = 4096 };

int main(void)
{
    begin();
    CUstream graphs = NULL, copies = NULL;
    CUevent replayed = NULL, copied = NULL;
    CUdeviceptr output = 0, clone = 0;
    CHECK(cuStreamCreate(&graphs, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&replayed, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&output, BYTES));
    CHECK(cuMemAlloc(&clone, BYTES));
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CHECK(cuStreamBeginCapture(graphs, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD8Async(output, 7, BYTES, graphs));
    CHECK(cuStreamEndCapture(graphs, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int step = 0; step < 2; step++) {
        CHECK(cuGraphLaunch(exec, graphs));
        CHECK(cuEventRecord(replayed, graphs));
        CHECK(cuStreamWaitEvent(copies, replayed, 0));
        CHECK(cuMemcpyDtoDAsync(clone, output, BYTES, copies));
#ifndef VIOLATE
        CHECK(cuEventRecord(copied, copies));
        CHECK(cuStreamWaitEvent(graphs, copied, 0));
#endif
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(clone));
    CHECK(cuMemFree(output));
    CHECK(cuEventDestroy(copied));
    CHECK(cuEventDestroy(replayed));
    CHECK(cuStreamDestroy(copies));
    CHECK(cuStreamDestroy(graphs));
    end();
    return success();
}
