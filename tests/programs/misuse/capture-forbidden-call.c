// Memory is allocated during a capture; the control allocates before it.
// expect: stream-capture-forbidden-call
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifdef VIOLATE
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(cuMemAlloc(&memory, 4096) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
#else
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(memory));
#endif
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
