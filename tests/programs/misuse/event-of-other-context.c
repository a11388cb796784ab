// An event is recorded in a stream of another context; the control lets that stream wait for it.
// expect: event-record-context-mismatch
#include "program.h"

int main(void)
{
    begin();
    CUcontext other = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxCreate(&other, NULL, 0, device));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
#ifdef VIOLATE
    EXPECT(cuEventRecord(event, stream) == CUDA_ERROR_INVALID_HANDLE);
#else
    CHECK(cuEventRecord(event, NULL));
    CHECK(cuStreamWaitEvent(stream, event, 0));
#endif
    CHECK(cuEventDestroy(event));
    CHECK(cuCtxDestroy(other));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
