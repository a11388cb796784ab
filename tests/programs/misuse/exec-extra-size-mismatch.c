// A parameter buffer of four bytes for a pointer of eight; the control passes eight. The kernel may
// fault on the real driver, so the results behind the launch are not looked at.
// expect: exec-extra-size-mismatch
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_MARK);
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    void *parameters[] = {&memory};
    (void)parameters;
#ifdef VIOLATE
    size_t size = sizeof memory / 2;
#else
    size_t size = sizeof memory;
#endif
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    MISUSE(cuLaunchKernel(mark, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    MISUSE(cuCtxSynchronize());
    MISUSE(cuMemFree(memory));
    MISUSE(cuModuleUnload(module));
    end();
    return success();
}
