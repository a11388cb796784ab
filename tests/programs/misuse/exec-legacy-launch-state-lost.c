// cuLaunchKernel between the setters and cuLaunchGrid; the control launches the old way only.
// expect: exec-legacy-launch-state-lost
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CHECK(cuFuncSetBlockShape(nothing, 32, 1, 1));
    CHECK(cuParamSetSize(nothing, 0));
#ifdef VIOLATE
    launch(nothing, 1, 32, NULL, NULL);
#endif
    CHECK(cuLaunchGrid(nothing, 1, 1));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
