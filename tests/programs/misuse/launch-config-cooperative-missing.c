// A kernel that has a grid barrier is launched as an ordinary one; the control launches it
// cooperatively.
// expect: launch-config-cooperative-missing
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_GRID_BARRIER);
    CUfunction synced = function_of(module, "synced");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    CHECK(cuMemsetD32(memory, 0, 64));
    CHECK(cuCtxSynchronize());
    void *parameters[] = {&memory};
#ifdef VIOLATE
    launch(synced, 2, 32, NULL, parameters);
#else
    CHECK(cuLaunchCooperativeKernel(synced, 2, 1, 1, 32, 1, 1, 0, NULL, parameters));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
