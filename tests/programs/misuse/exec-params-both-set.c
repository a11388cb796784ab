// Parameters through kernelParams and extra at once; the control uses one form.
// expect: exec-params-both-set
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_MARK);
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    void *parameters[] = {&memory};
    size_t size = sizeof memory;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
#ifdef VIOLATE
    MISUSE(cuLaunchKernel(mark, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, extra));
#else
    CHECK(cuLaunchKernel(mark, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuLaunchKernel(mark, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
