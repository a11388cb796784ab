// One event is recorded in each stream that has to be waited for, and then waited for once: each
// record replaces the one before, so only the last stream counts. The control waits after each
// record.
// https://github.com/torch/cutorch/pull/222
// expect: memory-race-cross-stream
#include "program.h"

enum { STREAMS = 3, PART = 4096 };

static void wait_for(CUstream waiting, const CUstream *others, CUevent event)
{
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuEventRecord(event, others[i]));
#ifndef VIOLATE
        CHECK(cuStreamWaitEvent(waiting, event, 0));
#endif
    }
#ifdef VIOLATE
    CHECK(cuStreamWaitEvent(waiting, event, 0));
#endif
}

int main(void)
{
    begin();
    CUstream others[STREAMS], waiting = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    void *result = NULL;
    CHECK(cuMemAlloc(&memory, STREAMS * PART));
    CHECK(cuMemAllocHost(&result, STREAMS * PART));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuStreamCreate(&others[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemsetD8Async(memory + (CUdeviceptr)i * PART, 1, PART, others[i]));
    }
    wait_for(waiting, others, event);
    CHECK(cuMemcpyDtoHAsync(result, memory, STREAMS * PART, waiting));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamDestroy(others[i]));
    CHECK(cuStreamDestroy(waiting));
    CHECK(cuEventDestroy(event));
    CHECK(cuMemFreeHost(result));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
