// An executable graph is updated through a node of a destroyed graph; the control destroys the
// graph after the update.
// expect: graph-use-after-destroy
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 64));
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphExec executable = NULL;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .elementSize = 4, .width = 16, .height = 1};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
#ifdef VIOLATE
    CHECK(cuGraphDestroy(graph));
#endif
    set.value = 1;
    MISUSE(cuGraphExecMemsetNodeSetParams(executable, node, &set, context));
#ifndef VIOLATE
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
