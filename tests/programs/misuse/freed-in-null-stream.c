// A copy to the host is put into a non-blocking stream, and its source is freed in the null
// stream, which does not wait for that; the control waits for the copy first.
// https://github.com/Genesis-Embodied-AI/quadrants/pull/407
// expect: memory-pool-access-unordered
#include "program.h"

int main(void)
{
    begin();
    CUstream active = NULL;
    CUdeviceptr transfer = 0;
    void *result = NULL;
    CHECK(cuStreamCreate(&active, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocHost(&result, 4096));
    CHECK(cuMemAllocAsync(&transfer, 4096, NULL));
    CHECK(cuMemsetD8Async(transfer, 1, 4096, NULL));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuMemcpyDtoHAsync(result, transfer, 4096, active));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(active));
#endif
    CHECK(cuMemFreeAsync(transfer, NULL));
    CHECK(cuStreamSynchronize(active));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(result));
    CHECK(cuStreamDestroy(active));
    end();
    return success();
}
