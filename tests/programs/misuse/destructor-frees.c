// The destructor of a user object, which a graph holds, frees the graph's buffer through a helper; the
// control's destructor leaves that to the program.
// https://github.com/NVIDIA/cuda-python/pull/2371
// expect: threading-host-function-calls-cuda
#include "program.h"

#include <stdatomic.h>

static CUdeviceptr buffer;
static atomic_int released;

static void release(void)
{
#ifdef VIOLATE
    CUcontext current = NULL;
    MISUSE(cuCtxGetCurrent(&current));
    MISUSE(cuMemFree(buffer));
#endif
    atomic_store(&released, 1);
}

static void destroy(void *unused UNUSED)
{
    release();
}

int main(void)
{
    begin();
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUuserObject object = NULL;
    CHECK(cuMemAlloc(&buffer, 64));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = buffer, .elementSize = 4, .width = 16, .height = 1};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    CHECK(cuUserObjectCreate(&object, NULL, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK(cuGraphDestroy(graph));
    while (!atomic_load(&released))
        usleep(1000);
    CHECK(cuMemFree(buffer));
    end();
    return success();
}
