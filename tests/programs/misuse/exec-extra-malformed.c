// The size of the parameter buffer by value; the control passes its address.
// expect: exec-extra-malformed
// crashes: SIGSEGV
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
    size_t size = sizeof memory;
#ifdef VIOLATE
    void *value = (void *)size;
#else
    void *value = &size;
#endif
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, value,
                     CU_LAUNCH_PARAM_END};
    MISUSE(cuLaunchKernel(mark, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
