// One attribute is announced but not passed; the control passes one that is ignored.
// expect: launch-config-attributes-null
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    CUlaunchConfig config = configuration(1, 32, NULL, &attribute, 1);
#ifdef VIOLATE
    config.attrs = NULL;
#endif
    MISUSE(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
