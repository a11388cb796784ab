// kernelParams holds a value in place of its address; the control holds the address.
// expect: exec-params-array-shape
// crashes: SIGSEGV
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    uint32_t start = 1, count = 64;
#ifdef VIOLATE
    void *parameters[] = {&memory, &start, (void *)(uintptr_t)count};
#else
    void *parameters[] = {&memory, &start, &count};
#endif
    MISUSE(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
