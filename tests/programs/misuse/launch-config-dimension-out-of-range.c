// A grid that is empty because there are no items; the control launches nothing then.
// expect: launch-config-dimension-out-of-range
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    unsigned items = 0, blocks = (items + 31) / 32;
#ifndef VIOLATE
    if (blocks > 0)
#endif
        MISUSE(cuLaunchKernel(nothing, blocks, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
