// Memory is allocated during a capture, and no result is looked at: the rest of the capture, the
// graph and its launch all fail. One finding, for the allocation. The control allocates before it.
// expect: stream-capture-forbidden-call
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    uint32_t start = 1, count = 64;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifndef VIOLATE
    CHECK(cuMemAlloc(&memory, 256));
#endif
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
#ifdef VIOLATE
    cuMemAlloc(&memory, 256);
#endif
    void *parameters[] = {&memory, &start, &count};
    cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, stream, parameters, NULL);
    cuStreamEndCapture(stream, &graph);
    cuGraphInstantiate(&executable, graph, 0);
    cuGraphLaunch(executable, stream);
    CHECK(cuStreamSynchronize(stream));
    if (executable != NULL)
        CHECK(cuGraphExecDestroy(executable));
    if (graph != NULL)
        CHECK(cuGraphDestroy(graph));
    if (memory != 0)
        CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
