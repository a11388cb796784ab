// Two streams use the same memory; the control lets the second wait for an event.
// expect: memory-race-cross-stream
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    uint32_t *values = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemAllocHost((void **)&values, 4096));
    CHECK(cuMemsetD32Async(memory, 7, 1024, first));
#ifndef VIOLATE
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
#endif
    CHECK(cuMemcpyDtoHAsync(values, memory, 4096, second));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(values));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
