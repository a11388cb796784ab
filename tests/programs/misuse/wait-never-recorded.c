// A consumer's stream waits for an event that the producer forgets to record; the control records it.
// expect: event-wait-unrecorded
// may: memory-race-cross-stream
#include "program.h"

int main(void)
{
    begin();
    CUstream producer = NULL, consumer = NULL;
    CUevent ready = NULL;
    CUdeviceptr input = 0, output = 0;
    CHECK(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&input, 4096));
    CHECK(cuMemAlloc(&output, 4096));
    CHECK(cuMemsetD8Async(input, 1, 4096, producer));
#ifndef VIOLATE
    CHECK(cuEventRecord(ready, producer));
#endif
    CHECK(cuStreamWaitEvent(consumer, ready, 0));
    CHECK(cuMemcpyDtoDAsync(output, input, 4096, consumer));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(output));
    CHECK(cuMemFree(input));
    CHECK(cuEventDestroy(ready));
    CHECK(cuStreamDestroy(consumer));
    CHECK(cuStreamDestroy(producer));
    end();
    return success();
}
