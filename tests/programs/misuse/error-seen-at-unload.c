// A kernel writes past all memory. The wait after it is not looked at; what the program sees is the
// error of its copy and of its clean-up, as in https://github.com/cupy/cupy/issues/9811. The control
// passes memory.
// expect: errors-async-misattributed
// null-driver: CUTAPE_NULL_FAIL=cuStreamSynchronize@*=700,cuMemcpyDtoH@*=700,cuModuleUnload@*=700
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    uint32_t start = 1, count = 64, first = 0;
#ifdef VIOLATE
    CUdeviceptr target = memory + ((CUdeviceptr)1 << 40);
#else
    CUdeviceptr target = memory;
#endif
    void *parameters[] = {&target, &start, &count};
    launch(fill, 1, 64, NULL, parameters);
#ifdef VIOLATE
    cuStreamSynchronize(NULL);
    CUresult copied = cuMemcpyDtoH(&first, memory, sizeof first);
    cuModuleUnload(module);
    printf("copy: %s\n", result_name(copied));
#else
    CHECK(cuMemcpyDtoHAsync(&first, memory, sizeof first, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    end();
#endif
    return success();
}
