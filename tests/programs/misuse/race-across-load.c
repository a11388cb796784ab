// Two streams use the same memory, and code is loaded between; the control lets the second wait.
// expect: memory-race-cross-stream
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    uint32_t *values = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 16384));
    CHECK(cuMemAllocHost((void **)&values, 16384));
    CHECK(cuMemsetD32Async(memory, 7, 4096, first));
#ifndef VIOLATE
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
#endif
    /* as the runtime does at the first launch of a kernel */
    CHECK(cuLibraryLoadData(&library, PTX_NOTHING, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
    CHECK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, second, NULL, NULL));
    CHECK(cuMemcpyDtoHAsync(values, memory, 16384, second));
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(library));
    CHECK(cuMemFreeHost(values));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
