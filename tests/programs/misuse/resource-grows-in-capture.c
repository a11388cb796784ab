// Temporary memory of a captured step comes from a resource that asks the driver when it has none
// left, which the driver does not permit during a capture. The control's resource has enough of it
// before the capture begins.
// https://github.com/NVIDIA/cuopt/issues/1748
// expect: stream-capture-forbidden-call
#include "program.h"

enum { MOST = 8, SIZE = 1 << 20 };

static CUdeviceptr blocks[MOST];
static int block_count, given;

static CUresult grow(void)
{
    CUresult result = cuMemAlloc(&blocks[block_count], SIZE);
    if (result == CUDA_SUCCESS)
        block_count++;
    return result;
}

static CUdeviceptr allocate(void)
{
    if (given == block_count && grow() != CUDA_SUCCESS)
        return 0;
    return blocks[given++];
}

static int step(CUstream stream)
{
    CUdeviceptr routes = allocate(), costs = allocate();
    if (routes == 0 || costs == 0)
        return -1;
    CHECK(cuMemsetD8Async(routes, 0, SIZE, stream));
    CHECK(cuMemsetD8Async(costs, 0, SIZE, stream));
    return 0;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(grow());
#ifndef VIOLATE
    CHECK(grow());
#endif
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MISUSE(step(stream));
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
        CHECK(cuGraphDestroy(graph));
    while (block_count > 0)
        CHECK(cuMemFree(blocks[--block_count]));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
