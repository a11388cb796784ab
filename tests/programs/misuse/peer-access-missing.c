// A kernel gets memory of another device without access to it; the control enables the access.
// expect: peer-access-missing
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs that can access each other
#include "program.h"

int main(void)
{
    begin();
    CUdevice second = 0;
    CUcontext other = NULL;
    CUdeviceptr memory = 0;
    uint32_t start = 5, count = 64;
    CHECK(cuDeviceGet(&second, 1));
    CHECK(cuCtxCreate(&other, NULL, 0, second));
    CHECK(cuMemAlloc(&memory, count * sizeof start));
    CHECK(cuCtxSetCurrent(context));
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
#ifndef VIOLATE
    CHECK(cuCtxEnablePeerAccess(other, 0));
#endif
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, 64, NULL, parameters);
    MISUSE(cuCtxSynchronize());
#ifndef VIOLATE
    CHECK(cuCtxDisablePeerAccess(other));
    CHECK(cuModuleUnload(module));
    CHECK(cuCtxDestroy(other));
    end();
#endif
    return success();
}
