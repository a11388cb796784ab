// Executable graphs are cached and launched again. One has a node that allocates, and the program
// frees that memory outside of the graph, after its last step. The control instantiates graphs so
// that each launch frees what the one before it allocated.
// https://github.com/NVIDIA/cccl/pull/9394
// expect: graph-relaunch-unfreed-allocation
#include "program.h"

enum { STEPS = 3, SIZE = 4096 };

static CUgraph capture(CUstream stream, CUdeviceptr *memory)
{
    CUgraph graph = NULL;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemAllocAsync(memory, SIZE, stream));
    CHECK(cuMemsetD8Async(*memory, 1, SIZE, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    return graph;
}

int main(void)
{
    begin();
#ifdef VIOLATE
    const unsigned flags = 0;
#else
    const unsigned flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
#endif
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CUgraphExec cached = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraph graph = capture(stream, &memory);
    CHECK(cuGraphInstantiate(&cached, graph, flags));
    for (int step = 0; step < STEPS; step++)
        MISUSE(cuGraphLaunch(cached, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(cached));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
