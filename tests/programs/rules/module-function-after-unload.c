// An enumerated function is launched after its module was unloaded; the control launches and waits
// before.
// expect: module-function-after-unload
// replay-skips: cuLaunchKernel
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction functions[1] = {NULL};
    unsigned count = 0;
    CHECK(cuModuleGetFunctionCount(&count, module));
    EXPECT(count == 1);
    CHECK(cuModuleEnumerateFunctions(functions, 1, module));
#ifdef VIOLATE
    CHECK(cuModuleUnload(module));
    MISUSE(cuLaunchKernel(functions[0], 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
#else
    launch(functions[0], 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
