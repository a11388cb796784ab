// A destroyed event is recorded; the control destroys it while it is pending, which is allowed.
// expect: event-use-after-destroy
// crashes: SIGSEGV
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUevent event = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
#ifdef VIOLATE
    CHECK(cuEventDestroy(event));
    MISUSE(cuEventRecord(event, stream));
#else
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamWaitEvent(NULL, event, 0));
    CHECK(cuEventDestroy(event));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
