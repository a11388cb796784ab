// A transport keeps a stream and an event of the application's context and destroys them after the
// application has reset the device; the control asks whether the context is still valid.
// https://github.com/openucx/ucx/pull/11437
// expect: context-resource-after-destroy
// may-crash: SIGSEGV
#include "program.h"

struct transport {
    CUcontext context;
    CUstream stream;
    CUevent event;
};

static void cleanup(struct transport *transport)
{
#ifndef VIOLATE
    unsigned version = 0;
    if (cuCtxGetApiVersion(transport->context, &version) != CUDA_SUCCESS)
        return;
#endif
    MISUSE(cuStreamDestroy(transport->stream));
    MISUSE(cuEventDestroy(transport->event));
}

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    struct transport transport = {.context = context};
    CHECK(cuStreamCreate(&transport.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&transport.event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8Async(memory, 1, 4096, transport.stream));
    CHECK(cuEventRecord(transport.event, transport.stream));
    CHECK(cuEventSynchronize(transport.event));
    CHECK(cuMemFree(memory));
    CHECK(cuDevicePrimaryCtxReset(device));
    cleanup(&transport);
    return success();
}
