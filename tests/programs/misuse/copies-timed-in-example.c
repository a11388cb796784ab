// An example times copies in a stream with two events. Its copies are asynchronous, and the time is
// asked for before the second event is done. The control synchronizes before.
// https://github.com/cupy/cupy/issues/5678
// expect: event-elapsed-not-complete
// null-driver: CUTAPE_NULL_SCHEDULE=lazy
#include "program.h"

enum { COPIES = 8, SIZE = 16 << 20 };

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUevent start = NULL, end_event = NULL;
    CUdeviceptr memory = 0;
    void *pinned = NULL;
    float milliseconds = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end_event, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemAllocHost(&pinned, SIZE));
    memset(pinned, 1, SIZE);
    CHECK(cuEventRecord(start, stream));
    for (int i = 0; i < COPIES; i++)
        CHECK(cuMemcpyHtoDAsync(memory, pinned, SIZE, stream));
    CHECK(cuEventRecord(end_event, stream));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    MISUSE(cuEventElapsedTime(&milliseconds, start, end_event));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(end_event));
    CHECK(cuEventDestroy(start));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
