// 64 KiB of dynamic shared memory without opt-in; the control opts in.
// expect: launch-config-dynamic-smem-limit
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    int bytes = 64 << 10;
#ifndef VIOLATE
    CHECK(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
#endif
    MISUSE(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, (unsigned)bytes, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
