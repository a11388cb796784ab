// A stream waits for an event that is recorded only afterwards; the control records it first.
// expect: event-wait-unrecorded
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent event = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
#ifdef VIOLATE
    CHECK(cuStreamWaitEvent(second, event, 0));
    CHECK(cuEventRecord(event, first));
#else
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
#endif
    CHECK(cuStreamSynchronize(second));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
