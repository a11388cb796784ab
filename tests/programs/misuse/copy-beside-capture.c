// A plugin connects while its user captures a blocking stream, and copies through the legacy
// default stream. The control relaxes the capture mode of its thread and copies in a stream of its
// own.
// https://github.com/aws/aws-ofi-nccl/pull/1342
// expect: stream-capture-legacy-stream
#include "program.h"

static void connect_peers(CUdeviceptr target)
{
    static const char address[64] = "peer";
#ifdef VIOLATE
    MISUSE(cuMemcpyHtoD(target, address, sizeof address));
#else
    CUstream side = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemcpyHtoDAsync(target, address, sizeof address, side));
    CHECK(cuStreamSynchronize(side));
    CHECK(cuStreamDestroy(side));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
#endif
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0, control = 0;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemAlloc(&control, 4096));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    connect_peers(control);
    MISUSE(cuMemsetD8Async(memory, 1, 4096, stream));
    MISUSE(cuStreamEndCapture(stream, &graph));
    if (graph)
        CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(control));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
