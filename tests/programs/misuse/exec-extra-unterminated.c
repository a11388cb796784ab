// extra without an end, before an address; the control ends with CU_LAUNCH_PARAM_END.
// expect: exec-extra-unterminated
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
    void *behind = &size;
#else
    void *behind = CU_LAUNCH_PARAM_END;
#endif
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     behind, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(mark, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
