// The legacy default stream is used while a blocking stream captures; the control captures a
// non-blocking stream.
// expect: stream-capture-legacy-stream
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
#ifdef VIOLATE
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
#else
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#endif
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
#ifdef VIOLATE
    EXPECT(cuMemsetD8Async(memory, 1, 4096, NULL) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    (void)cuStreamEndCapture(stream, &graph);
#else
    CHECK(cuMemsetD8Async(memory, 1, 4096, NULL));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
