// The buffer of a captured graph is replaced by that of another after the capture, so each frame's
// launch fails, which is swallowed. The control captures after the replacement.
// https://github.com/beehive-lab/TornadoVM/issues/1006
// expect: graph-baked-pointer-freed
// may: errors-sticky-continue errors-async-never-observed
#include "program.h"

enum { FRAMES = 4 };

static CUdeviceptr depth, depth_of_producer;

static void replace(void)
{
    CHECK(cuMemFree(depth));
    depth = depth_of_producer;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction integrate = function_of(module, "fill");
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    uint32_t start = 0, count = 64;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&depth, 4096));
    CHECK(cuMemAlloc(&depth_of_producer, 4096));
#ifndef VIOLATE
    replace();
#endif
    void *parameters[] = {&depth, &start, &count};
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(integrate, 1, 64, stream, parameters);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
#ifdef VIOLATE
    replace();
    for (int frame = 0; frame < FRAMES; frame++)
        cuGraphLaunch(executable, stream);
#else
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(depth));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
#endif
    return success();
}
