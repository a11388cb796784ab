// A node is given one dependency twice; the control gives it once.
// expect: graph-structure-invalid
#include "program.h"

int main(void)
{
    begin();
    CUgraph graph = NULL;
    CUgraphNode node = NULL, after = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    CUgraphNode dependencies[2] = {node, node};
#ifdef VIOLATE
    MISUSE(cuGraphAddEmptyNode(&after, graph, dependencies, 2));
#else
    CHECK(cuGraphAddEmptyNode(&after, graph, dependencies, 1));
#endif
    CHECK(cuGraphDestroy(graph));
    end();
    return success();
}
