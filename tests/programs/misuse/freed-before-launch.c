// An array that is allocated while a function is captured is collected after it, and so its memory
// is freed although the graph that allocates it was not launched yet. The control frees it after
// the launch.
// https://github.com/JuliaGPU/CUDA.jl/issues/1230
// expect: graph-allocation-lifetime
#include "program.h"

enum { SIZE = 4096 };

struct captured {
    CUgraph graph;
    CUgraphExec executable;
    CUdeviceptr array;
};

static void capture(struct captured *captured, CUstream stream)
{
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemAllocAsync(&captured->array, SIZE, stream));
    CHECK(cuMemsetD8Async(captured->array, 0, SIZE, stream));
    CHECK(cuStreamEndCapture(stream, &captured->graph));
    CHECK(cuGraphInstantiate(&captured->executable, captured->graph, 0));
}

static void collect(const struct captured *captured, CUstream stream)
{
    MISUSE(cuMemFreeAsync(captured->array, stream));
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    struct captured captured = {0};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    capture(&captured, stream);
#ifdef VIOLATE
    collect(&captured, stream);
    CHECK(cuGraphLaunch(captured.executable, stream));
    CHECK(cuMemFreeAsync(captured.array, stream));
#else
    CHECK(cuGraphLaunch(captured.executable, stream));
    collect(&captured, stream);
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(captured.executable));
    CHECK(cuGraphDestroy(captured.graph));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
