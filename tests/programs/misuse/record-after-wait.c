// The consumer's stream waits for an event that the producer records later, so it waits for
// nothing; the control enqueues the producer's work first.
// https://github.com/sgl-project/sglang/pull/14214
// expect: event-wait-unrecorded memory-race-cross-stream
#include "program.h"

static CUstream consumer, producer;
static CUevent event;
static CUdeviceptr memory;

static void consume(void *values)
{
    CHECK(cuStreamWaitEvent(consumer, event, 0));
    CHECK(cuMemcpyDtoHAsync(values, memory, 4096, consumer));
}

static void produce(void)
{
    CHECK(cuMemsetD32Async(memory, 7, 1024, producer));
    CHECK(cuEventRecord(event, producer));
}

int main(void)
{
    begin();
    void *values = NULL;
    CHECK(cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD32(memory, 0, 1024));
    CHECK(cuMemAllocHost(&values, 4096));
    CHECK(cuCtxSynchronize());
#ifdef VIOLATE
    consume(values);
    produce();
#else
    produce();
    consume(values);
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(values));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(producer));
    CHECK(cuStreamDestroy(consumer));
    end();
    return success();
}
