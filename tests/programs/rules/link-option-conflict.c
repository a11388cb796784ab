// A link is given two options that exclude each other; the control gives one, and the fallback to a
// load.
// expect: link-option-conflict
#include "images.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
#ifdef VIOLATE
    CUjit_option options[] = {CU_JIT_THREADS_PER_BLOCK, CU_JIT_TARGET};
    void *values[] = {(void *)256, (void *)(uintptr_t)device_arch()};
    CUresult result = cuLinkCreate(2, options, values, &state);
    if (result == CUDA_SUCCESS)
        CHECK(cuLinkDestroy(state));
#else
    CUjit_option options[] = {CU_JIT_TARGET}, fallback[] = {CU_JIT_FALLBACK_STRATEGY};
    void *values[] = {(void *)(uintptr_t)device_arch()};
    void *fallback_values[] = {(void *)CU_PREFER_PTX};
    CUmodule module = NULL;
    CHECK(cuLinkCreate(1, options, values, &state));
    CHECK(cuLinkDestroy(state));
    CHECK(cuModuleLoadDataEx(&module, PTX_FILL, 1, fallback, fallback_values));
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
