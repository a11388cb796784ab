// A capture ends before a stream that an event brought in is joined; the control joins it.
// expect: stream-capture-unjoined
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent fork = NULL, join = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuEventRecord(fork, first));
    CHECK(cuStreamWaitEvent(second, fork, 0));
    CHECK(cuMemsetD8Async(memory, 1, 4096, second));
#ifdef VIOLATE
    EXPECT(cuStreamEndCapture(first, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
#else
    CHECK(cuEventRecord(join, second));
    CHECK(cuStreamWaitEvent(first, join, 0));
    CHECK(cuStreamEndCapture(first, &graph));
    CHECK(cuGraphDestroy(graph));
#endif
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(join));
    CHECK(cuEventDestroy(fork));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
