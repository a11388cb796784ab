// The program releases a reference that it has moved to a graph; the control keeps its own.
// expect: graph-user-object-references
#include "program.h"

static void nothing(void *data)
{
    (void)data;
}

int main(void)
{
    begin();
    CUgraph graph = NULL;
    CUuserObject object = NULL;
    int value = 0;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuUserObjectCreate(&object, &value, nothing, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
#ifdef VIOLATE
    CHECK(cuGraphRetainUserObject(graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE));
#else
    CHECK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
#endif
    MISUSE(cuUserObjectRelease(object, 1));
    CHECK(cuGraphDestroy(graph));
    end();
    return success();
}
