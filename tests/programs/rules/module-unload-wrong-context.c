// A module is unloaded while another context is current; the control pushes its own context first.
// expect: module-unload-wrong-context
// needs: two-contexts
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CUcontext first = NULL, second = NULL;
    CHECK(cuCtxCreate(&first, NULL, 0, device));
    CHECK(cuCtxCreate(&second, NULL, 0, device));
    CHECK(cuCtxSetCurrent(first));
    CUmodule module = load_ptx(PTX_FILL);
    CHECK(cuCtxSetCurrent(second));
#ifdef VIOLATE
    MISUSE(cuModuleUnload(module));
#else
    CUcontext popped = NULL;
    CHECK(cuCtxPushCurrent(first));
    CHECK(cuModuleUnload(module));
    CHECK(cuCtxPopCurrent(&popped));
    EXPECT(popped == first);
#endif
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxDestroy(first));
    return success();
}
