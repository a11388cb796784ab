// The return value of the call that raises the limit of shared memory is not looked at, and the
// kernel is launched with the larger size. The control falls back to the kernel without it.
// https://github.com/NVIDIA/TensorRT-LLM/pull/1025
// expect: launch-config-dynamic-smem-limit
#include "program.h"

enum { SEQUENCE = 1 << 17 };

static void attend(CUfunction function)
{
    const CUfunction_attribute limit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    int bytes = SEQUENCE * (int)sizeof(float);
#ifdef VIOLATE
    MISUSE(cuFuncSetAttribute(function, limit, bytes));
#else
    if (cuFuncSetAttribute(function, limit, bytes) != CUDA_SUCCESS)
        bytes = 0;
#endif
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, (unsigned)bytes, NULL, NULL, NULL));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    attend(function_of(module, "nothing"));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
