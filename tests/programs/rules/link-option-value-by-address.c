// An option value is the address of the number; the control passes the number.
// expect: link-option-value-by-address
#include "program.h"

int main(void)
{
    begin();
    static unsigned registers = 32;
    CUmodule module = NULL;
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS};
#ifdef VIOLATE
    void *values[] = {&registers};
    CUresult result = cuModuleLoadDataEx(&module, PTX_FILL, 1, options, values);
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    void *values[] = {(void *)(uintptr_t)registers};
    CHECK(cuModuleLoadDataEx(&module, PTX_FILL, 1, options, values));
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
