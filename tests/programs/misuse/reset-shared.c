// One of two users of a primary context resets it while the other has a stream there; the control
// releases its own reference.
// expect: context-primary-reset-shared
#include "program.h"

int main(void)
{
    begin();
    CUcontext other = NULL;
    CUstream stream = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&other, device));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifdef VIOLATE
    CHECK(cuDevicePrimaryCtxReset(device));
#else
    CHECK(cuStreamDestroy(stream));
#endif
    CHECK(cuDevicePrimaryCtxRelease(device));
    end();
    return success();
}
