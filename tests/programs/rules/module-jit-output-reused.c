// The size of a log buffer, overwritten by the first load, is passed to a second; the control sets
// it anew.
// expect: module-jit-output-reused
// may: module-jit-options-malformed
// (where the driver logs nothing, the second load gives a buffer of size zero)
#include "program.h"

int main(void)
{
    setenv("CUDA_CACHE_DISABLE", "1", 1); /* a compilation out of the cache logs nothing */
    begin();
    static char log[4096];
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_LOG_VERBOSE};
    void *values[] = {log, (void *)sizeof log, (void *)1};
    CUmodule first = NULL, second = NULL;
    CHECK(cuModuleLoadDataEx(&first, PTX_FILL, 3, options, values));
#ifndef VIOLATE
    values[1] = (void *)sizeof log;
#endif
    CHECK(cuModuleLoadDataEx(&second, PTX_VECTOR_ADD, 3, options, values));
    CHECK(cuModuleUnload(second));
    CHECK(cuModuleUnload(first));
    end();
    return success();
}
