// A cached function of one GPU is launched while the context of another is current; the control
// caches the function by context.
// expect: exec-null-stream-context
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction cached[2] = {function_of(module, "nothing"), NULL};
    CUdevice second = 0;
    CUcontext other = NULL;
    CHECK(cuDeviceGet(&second, 1));
    CHECK(cuCtxCreate(&other, NULL, 0, second));
    CUmodule theirs = load_ptx(PTX_NOTHING);
    cached[1] = function_of(theirs, "nothing");
#ifdef VIOLATE
    CUfunction function = cached[0];
#else
    CUfunction function = cached[1];
#endif
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(theirs));
    CHECK(cuCtxDestroy(other));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
