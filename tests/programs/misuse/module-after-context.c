// A module is unloaded after its context was destroyed; the control unloads it before.
// expect: context-resource-after-destroy
// may: context-objects-left-behind module-use-after-unload
#include "program.h"

int main(void)
{
    begin();
    CUcontext own = NULL;
    CHECK(cuCtxCreate(&own, NULL, 0, device));
    CUmodule module = load_ptx(PTX_FILL);
#ifdef VIOLATE
    CHECK(cuCtxDestroy(own));
    CHECK(cuCtxSetCurrent(context));
    MISUSE(cuModuleUnload(module));
#else
    CHECK(cuModuleUnload(module));
    CHECK(cuCtxDestroy(own));
#endif
    end();
    return success();
}
