// Device memory is freed directly behind an asynchronous memset; the control waits first.
// expect: memory-free-pending-work
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuMemFree(memory));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
