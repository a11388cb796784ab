// A captured memset is launched after its memory was freed; the control gives the executable graph
// new memory first.
// expect: graph-baked-pointer-freed
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = 0, other = 0;
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuMemAlloc(&other, 64));
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphExec executable = NULL;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 4, .width = 16, .height = 1};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(memory));
#ifdef VIOLATE
    MISUSE(cuGraphLaunch(executable, stream));
#else
    set.dst = other;
    CHECK(cuGraphExecMemsetNodeSetParams(executable, node, &set, context));
    CHECK(cuGraphLaunch(executable, stream));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(other));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
