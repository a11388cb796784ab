// Events with times that only order work; the control disables the times.
// expect: performance-event-timing-unneeded
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUevent event = NULL;
#ifdef VIOLATE
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
#else
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
#endif
    for (int i = 0; i < 100; i++) {
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(NULL, event, 0));
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
