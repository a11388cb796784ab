// An autotuner unloads the module of each candidate, also where the load failed and left the
// variable unset; the control does not.
// https://github.com/ROCm/hrx-system/pull/200
// expect: module-ptx-jit-failure module-load-allocation-failure
// may-crash: SIGSEGV
#include "program.h"

int main(void)
{
    begin();
    static const char *candidates[] = {PTX_NOTHING, PTX_HEAD ".visible .entry broken("};
    for (int i = 0; i < 2; i++) {
        CUmodule module = (CUmodule)(uintptr_t)0x5a5a5a5a5a5a5a50; /* what the stack holds */
        CUresult result = cuModuleLoadData(&module, candidates[i]);
#ifdef VIOLATE
        (void)result;
        MISUSE(cuModuleUnload(module));
#else
        if (result == CUDA_SUCCESS)
            CHECK(cuModuleUnload(module));
        break;
#endif
    }
    end();
    return success();
}
