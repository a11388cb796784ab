// An executable graph is launched after the driver refused its update; the control instantiates the
// new graph.
// expect: graph-update-incompatible
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraph graph = NULL, other = NULL;
    CUgraphNode node = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    CHECK(cuGraphCreate(&other, 0));
    CHECK(cuGraphAddEmptyNode(&node, other, NULL, 0));
    CHECK(cuGraphAddEmptyNode(&node, other, NULL, 0));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CUgraphExecUpdateResultInfo information;
    memset(&information, 0, sizeof information);
    MISUSE(cuGraphExecUpdate(executable, other, &information));
#ifndef VIOLATE
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphInstantiate(&executable, other, 0));
#endif
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(other));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
