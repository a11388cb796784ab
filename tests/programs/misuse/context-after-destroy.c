// A destroyed context is pushed; the control pushes and pops it before.
// expect: context-use-after-destroy
// may-crash: SIGSEGV
// replay-skips: cuCtxPushCurrent_v2 cuCtxPopCurrent_v2
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CUcontext own = NULL, popped = NULL;
    CHECK(cuCtxCreate(&own, NULL, 0, device));
    CHECK(cuCtxPopCurrent(&popped));
    EXPECT(popped == own);
#ifdef VIOLATE
    CHECK(cuCtxDestroy(own));
    CUresult result = cuCtxPushCurrent(own);
    if (result == CUDA_SUCCESS)
        MISUSE(cuCtxPopCurrent(&popped));
#else
    CHECK(cuCtxPushCurrent(own));
    CHECK(cuCtxPopCurrent(&popped));
    CHECK(cuCtxDestroy(own));
#endif
    return success();
}
