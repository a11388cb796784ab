// A thread without a current context launches in the default stream; the control makes one current.
// expect: exec-null-stream-context
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CHECK(cuCtxSetCurrent(NULL));
#ifndef VIOLATE
    CHECK(cuCtxSetCurrent(context));
#endif
    MISUSE(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
