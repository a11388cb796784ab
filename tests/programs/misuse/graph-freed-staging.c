// A captured upload reads a staging buffer in page-locked memory that is freed when the capture has
// ended; the control keeps it as long as the graph.
// https://github.com/huggingface/candle/pull/3352
// expect: graph-baked-pointer-freed
// may-crash: SIGSEGV
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr sizes = 0;
    void *staging = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&sizes, 4096));
    CHECK(cuMemAllocHost(&staging, 4096));
    memset(staging, 1, 4096);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemcpyHtoDAsync(sizes, staging, 4096, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
#ifdef VIOLATE
    CHECK(cuMemFreeHost(staging));
    MISUSE(cuGraphLaunch(executable, stream));
    MISUSE(cuStreamSynchronize(stream));
#else
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost(staging));
#endif
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(sizes));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
