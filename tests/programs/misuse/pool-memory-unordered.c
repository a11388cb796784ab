// Memory of cuMemAllocAsync is used in a stream that does not wait for the allocation; the control
// lets it wait, and the free for the use.
// expect: memory-pool-access-unordered
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocAsync(&memory, 4096, first));
#ifndef VIOLATE
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
#endif
    CHECK(cuMemsetD8Async(memory, 1, 4096, second));
    CHECK(cuEventRecord(event, second));
    CHECK(cuStreamWaitEvent(first, event, 0));
    CHECK(cuMemFreeAsync(memory, first));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
