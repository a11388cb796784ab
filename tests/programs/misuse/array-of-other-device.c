// An array of the first device goes to a kernel of the second, and a driver answers ILLEGAL_ADDRESS at
// the wait; the control enables access first.
// https://github.com/cupy/cupy/issues/5379
// expect: peer-access-missing
// may: errors-async-misattributed
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs that can access each other
#include "program.h"

int main(void)
{
    begin();
    CUcontext second = NULL;
    CUdeviceptr d0 = 0, d1 = 0;
    uint32_t count = 10;
    CHECK(cuMemAlloc(&d0, count * 4));
    CHECK(cuMemsetD32(d0, 3, count));
    CHECK(cuCtxSynchronize());
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxSetCurrent(second));
    CHECK(cuMemAlloc(&d1, count * 4));
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
#ifndef VIOLATE
    CHECK(cuCtxEnablePeerAccess(context, 0));
#endif
    void *parameters[] = {&d0, &d0, &d1, &count};
    launch(add, 1, 32, NULL, parameters);
    MISUSE(cuCtxSynchronize());
#ifndef VIOLATE
    CHECK(cuModuleUnload(module));
    CHECK(cuMemFree(d1));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(d0));
    CHECK(cuDevicePrimaryCtxRelease(1));
    end();
#endif
    return success();
}
