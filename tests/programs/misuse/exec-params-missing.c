// A kernel with a parameter is launched without any; the control passes it.
// expect: exec-params-array-shape
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_MARK);
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    void *parameters[] = {&memory};
#ifdef VIOLATE
    (void)parameters;
    MISUSE(cuLaunchKernel(mark, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
#else
    launch(mark, 1, 32, NULL, parameters);
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
