// A log buffer is given without its size; the control gives both, and no options with null arrays.
// expect: module-jit-options-malformed
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = NULL;
    static char log[4096];
#ifdef VIOLATE
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER};
    void *values[] = {log};
    CUresult result = cuModuleLoadDataEx(&module, PTX_FILL, 1, options, values);
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CHECK(cuModuleLoadDataEx(&module, PTX_FILL, 2, options, values));
    CHECK(cuModuleUnload(module));
    CHECK(cuModuleLoadDataEx(&module, PTX_FILL, 0, NULL, NULL));
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
