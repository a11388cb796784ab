// The page-locked target of an asynchronous copy is freed directly behind it; the control waits for
// an event first.
// expect: memory-host-buffer-freed-while-pending
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    void *values = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemAllocHost(&values, 4096));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
    CHECK(cuMemcpyDtoHAsync(values, memory, 4096, stream));
    CHECK(cuEventRecord(event, stream));
#ifndef VIOLATE
    CHECK(cuEventSynchronize(event));
#endif
    CHECK(cuMemFreeHost(values));
    CHECK(cuEventSynchronize(event));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
