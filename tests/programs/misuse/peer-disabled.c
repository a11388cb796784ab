// Access to another context is disabled although it was never enabled; the control enables it.
// expect: peer-enable-state
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs that can access each other
#include "program.h"

int main(void)
{
    begin();
    CUdevice second = 0;
    CUcontext other = NULL;
    CHECK(cuDeviceGet(&second, 1));
    CHECK(cuCtxCreate(&other, NULL, 0, second));
    CHECK(cuCtxSetCurrent(context));
#ifdef VIOLATE
    MISUSE(cuCtxDisablePeerAccess(other));
#else
    CHECK(cuCtxEnablePeerAccess(other, 0));
    CHECK(cuCtxDisablePeerAccess(other));
#endif
    CHECK(cuCtxDestroy(other));
    end();
    return success();
}
