// A kernel that was kept from before a reset of the context is launched; the control looks it up
// again.
// expect: context-resource-after-destroy
// replay-skips: cuLaunchKernel
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    uint32_t start = 5, count = 64;
    CHECK(cuDevicePrimaryCtxReset(device));
    CHECK(cuDevicePrimaryCtxRelease(device));
    begin();
    CHECK(cuMemAlloc(&memory, count * sizeof start));
    void *parameters[] = {&memory, &start, &count};
#ifdef VIOLATE
    MISUSE(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
#else
    module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    launch(fill, 1, 64, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
#endif
    CHECK(cuMemFree(memory));
    end();
    return success();
}
