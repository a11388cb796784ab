// Access is to be enabled in both directions, but the context that was made last is current in both
// calls, so the second enables access to itself. The control makes the other context current.
// https://github.com/inducer/pycuda/issues/71
// expect: peer-enable-state
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs that can access each other
#include "program.h"

static CUresult enable(CUcontext from UNUSED, CUcontext to)
{
#ifndef VIOLATE
    CHECK(cuCtxSetCurrent(from));
#endif
    return cuCtxEnablePeerAccess(to, 0);
}

int main(void)
{
    CHECK(cuInit(0));
    CUdevice devices[2];
    CUcontext first = NULL, second = NULL;
    int can = 0;
    CHECK(cuDeviceGet(&devices[0], 0));
    CHECK(cuDeviceGet(&devices[1], 1));
    CHECK(cuDeviceCanAccessPeer(&can, devices[0], devices[1]));
    EXPECT(can);
    CHECK(cuCtxCreate(&first, NULL, 0, devices[0]));
    CHECK(cuCtxCreate(&second, NULL, 0, devices[1]));
    CHECK(enable(second, first));
    MISUSE(enable(first, second));
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxDestroy(first));
    return success();
}
