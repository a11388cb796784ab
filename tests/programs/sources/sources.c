// Copies asynchronously from memory of the host, and writes there: `overwritten` before the copy is
// known to be complete, `waited` behind a wait, `query` behind a query that says so, `event` behind
// an event that another stream waits for, `device` by a later copy to the same memory, `pageable`
// at once, in memory that is not page-locked.
#include "program.h"

enum { COUNT = 4096 };

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int is_pageable = strcmp(what, "pageable") == 0;
    begin();
    static uint32_t pageable[COUNT];
    uint32_t *source = pageable;
    CUdeviceptr memory = 0;
    CUstream stream = NULL, other = NULL;
    CUevent copied = NULL;
    if (!is_pageable)
        CHECK(cuMemAllocHost((void **)&source, sizeof pageable));
    CHECK(cuMemAlloc(&memory, sizeof pageable));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    for (uint32_t i = 0; i < COUNT; i++)
        source[i] = i;
    CHECK(cuMemcpyHtoDAsync(memory, source, sizeof pageable, stream));
    if (strcmp(what, "waited") == 0)
        CHECK(cuStreamSynchronize(stream));
    if (strcmp(what, "query") == 0)
        while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
            continue;
    if (strcmp(what, "event") == 0) {
        CHECK(cuEventRecord(copied, stream));
        CHECK(cuStreamWaitEvent(other, copied, 0));
        CHECK(cuStreamSynchronize(other));
    }
    if (strcmp(what, "device") == 0) {
        CHECK(cuMemsetD32Async(memory, 7, COUNT, stream));
        CHECK(cuMemcpyDtoHAsync(source, memory, sizeof pageable, stream));
    } else {
        source[COUNT - 1] = 0;
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(copied));
    CHECK(cuStreamDestroy(other));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(memory));
    if (!is_pageable)
        CHECK(cuMemFreeHost(source));
    end();
    return success();
}
