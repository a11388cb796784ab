// A helper pops on its error path and again at its end, and so takes its caller's context; the control
// pops once. The caller does not look at results.
// https://github.com/inducer/pycuda/issues/335
// expect: context-unbalanced
#include "program.h"

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr memory = 0;
    CHECK(cuCtxPushCurrent(context));
    if (cuMemAlloc(&memory, bytes) != CUDA_SUCCESS) {
        fputs("out of memory\n", stdout);
#ifdef VIOLATE
        CHECK(cuCtxPopCurrent(NULL));
#endif
    }
    CHECK(cuCtxPopCurrent(NULL));
    return memory;
}

int main(void)
{
    begin();
    CUdeviceptr memory = allocate(4096), none = allocate((size_t)1 << 60);
    EXPECT(none == 0);
    MISUSE(cuMemsetD8(memory, 1, 4096));
    MISUSE(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
