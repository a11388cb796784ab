// A watchdog thread asks for an event of earlier work while another thread captures, and drops the
// result; the control's watchdog leaves the captures of other threads alone.
// https://github.com/pytorch/pytorch/pull/104555
// expect: stream-capture-forbidden-call
#include "program.h"

#include <pthread.h>

static CUevent earlier;

static void *watch(void *unused UNUSED)
{
    CHECK(cuCtxSetCurrent(context));
#ifndef VIOLATE
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
#endif
    MISUSE(cuEventQuery(earlier));
    return NULL;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    pthread_t watchdog;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&earlier, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
    CHECK(cuEventRecord(earlier, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(pthread_create(&watchdog, NULL, watch, NULL) == 0);
    EXPECT(pthread_join(watchdog, NULL) == 0);
    MISUSE(cuMemsetD8Async(memory, 2, 4096, stream));
    MISUSE(cuStreamEndCapture(stream, &graph));
    if (graph)
        CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(earlier));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
