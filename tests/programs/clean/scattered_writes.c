/* Writes of a few bytes here and there in long memory: columns, by a memset of two dimensions, by a
 * copy and by a node of a graph. */
#include "program.h"

/* What the node writes: another value in tests of `first --differs`. */
#ifndef VALUE
#define VALUE 9
#endif

enum { PITCH = 100000, ROWS = 40, BYTES = PITCH * ROWS };

int main(void)
{
    begin();
    CUdeviceptr table = 0;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&table, BYTES));
    CHECK(cuMemsetD8(table, 1, BYTES));
    CHECK(cuMemsetD2D8(table + 7, PITCH, 2, 3, ROWS));
    unsigned char host[2] = {5, 6};
    CHECK(cuMemcpyHtoD(table + 65535, host, sizeof host));

    CUgraph graph = NULL;
    CUgraphNode node;
    CUgraphExec executable = NULL;
    CUDA_MEMSET_NODE_PARAMS params = {.dst = table + PITCH, .pitch = PITCH, .elementSize = 1, .value = VALUE, .width = 1, .height = 2};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(host, table + 2 * PITCH, 1));
    EXPECT(host[0] == VALUE);

    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(table));
    CHECK(cuStreamDestroy(stream));
    puts("written");
    end();
    return success();
}
