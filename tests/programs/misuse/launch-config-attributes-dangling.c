// An attribute whose count was forgotten; the control counts it.
// expect: launch-config-attributes-dangling
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config = configuration(1, 32, NULL, &attribute, 1);
#ifdef VIOLATE
    config.numAttrs = 0;
#endif
    CHECK(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
