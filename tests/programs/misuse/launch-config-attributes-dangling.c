// The number of attributes was forgotten, of which the kernel needs one; the control counts it.
// expect: launch-config-attributes-dangling
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
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config = configuration(1, 32, NULL, &attribute, 1);
#ifdef VIOLATE
    config.numAttrs = 0;
#endif
    CHECK(cuLaunchKernelEx(&config, synced, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
