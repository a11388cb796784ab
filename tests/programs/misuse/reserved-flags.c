// A graph is created with flags, which must be 0; the control passes 0.
// expect: errors-reserved-argument-nonzero
#include "program.h"

int main(void)
{
    begin();
    CUgraph graph = NULL;
#ifdef VIOLATE
    EXPECT(cuGraphCreate(&graph, 1) == CUDA_ERROR_INVALID_VALUE);
#else
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphDestroy(graph));
#endif
    end();
    return success();
}
