// A graph with a host node is instantiated for launches from the device; the control leaves the flag
// out.
// expect: graph-device-launch-restrictions
#include "program.h"

static void nothing(void *data)
{
    (void)data;
}

int main(void)
{
    begin();
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphExec executable = NULL;
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
#ifdef VIOLATE
    MISUSE(cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
#else
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphExecDestroy(executable));
#endif
    CHECK(cuGraphDestroy(graph));
    end();
    return success();
}
