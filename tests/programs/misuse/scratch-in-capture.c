// A step of a decoder allocates scratch memory on its first use, which is during a capture, and
// drops the results. The control runs the step once before the capture.
// https://github.com/anthony-chaudhary/fak/issues/969
// expect: stream-capture-forbidden-call
#include "program.h"

static CUdeviceptr scratch;

static void step(CUstream stream)
{
    if (!scratch)
        cuMemAlloc(&scratch, 20480);
    cuMemsetD8Async(scratch, 0, 20480, stream);
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifndef VIOLATE
    step(stream);
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    step(stream);
    cuStreamEndCapture(stream, &graph);
    if (graph != NULL) {
        CHECK(cuGraphInstantiate(&executable, graph, 0));
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(executable));
        CHECK(cuGraphDestroy(graph));
    }
    if (scratch)
        CHECK(cuMemFree(scratch));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
