// A copy from pageable memory, then its use in a stream that does not wait for the default stream;
// the control waits between the two.
// expect: memory-pageable-h2d-unordered
#include "program.h"

static uint32_t values[1024];

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0, copy = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof values));
    CHECK(cuMemAlloc(&copy, sizeof values));
    for (uint32_t i = 0; i < 1024; i++)
        values[i] = i;
    CHECK(cuMemcpyHtoD(memory, values, sizeof values));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(NULL));
#endif
    CHECK(cuMemcpyDtoDAsync(copy, memory, sizeof values, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(copy));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
