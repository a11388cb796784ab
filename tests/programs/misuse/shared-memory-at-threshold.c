// A launcher opts in to more dynamic shared memory only above 48 KiB. At exactly 48 KiB, the
// static shared memory of the kernel takes the block over its limit. The control opts in at 48 KiB
// too.
// https://github.com/NVIDIA/numba-cuda-mlir/issues/143
// expect: launch-config-dynamic-smem-limit
#include "program.h"

enum { THRESHOLD = 48 << 10 };

static void start(CUfunction function, int shared, void **parameters)
{
    const CUfunction_attribute limit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
#ifdef VIOLATE
    if (shared > THRESHOLD)
#else
    if (shared >= THRESHOLD)
#endif
        CHECK(cuFuncSetAttribute(function, limit, shared));
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, (unsigned)shared, NULL, parameters, NULL));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_REDUCE);
    CUfunction reduce = function_of(module, "reduce");
    CUdeviceptr input = 0, output = 0;
    uint32_t count = 128;
    CHECK(cuMemAlloc(&input, 512));
    CHECK(cuMemAlloc(&output, 4));
    CHECK(cuMemsetD32(input, 1, count));
    CHECK(cuMemsetD32(output, 0, 1));
    void *parameters[] = {&input, &output, &count};
    start(reduce, 1 << 10, parameters);
    start(reduce, THRESHOLD, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(output));
    CHECK(cuMemFree(input));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
