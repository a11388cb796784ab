// An error in a captured step leaves the function before the capture is ended, and the stream
// stays in capture mode; the control ends the capture on that way out too.
// https://github.com/anthony-chaudhary/fak/issues/932
// expect: stream-capture-bracket
#include "program.h"

static int step(CUstream stream, CUdeviceptr memory, int fails)
{
    if (fails)
        return -1;
    return cuMemsetD8Async(memory, 0, 4096, stream) == CUDA_SUCCESS ? 0 : -1;
}

static int capture(CUstream stream, CUdeviceptr memory, int fails)
{
    CUgraph graph = NULL;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (step(stream, memory, fails) < 0) {
#ifndef VIOLATE
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
#endif
        return -1;
    }
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    return 0;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, 4096));
    EXPECT(capture(stream, memory, 0) == 0);
    EXPECT(capture(stream, memory, 1) < 0);
    MISUSE(cuStreamDestroy(stream));
    MISUSE(cuMemFree(memory));
    end();
    return success();
}
