/* A host function changes what a copy brought, before any call shows that the copy is complete:
   behind the copy on its stream, and behind it in a graph. */
#include "program.h"

static void reset(void *data)
{
    *(int *)data = 0;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    int *pinned = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemAllocHost((void **)&pinned, 4096));
    CHECK(cuMemsetD32Async(memory, 7, 1024, stream));

    CHECK(cuMemcpyDtoHAsync(pinned, memory, 4096, stream));
    CHECK(cuLaunchHostFunc(stream, reset, pinned));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(pinned[0] == 0 && pinned[1] == 7);

    /* Nothing comes behind this one. */
    CHECK(cuMemcpyDtoHAsync(pinned, memory, 4096, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(pinned[0] == 7);

    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemcpyDtoHAsync(pinned, memory, 4096, stream));
    CHECK(cuLaunchHostFunc(stream, reset, pinned + 1));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(pinned[0] == 7 && pinned[1] == 0);

    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
