// The size of a parameter buffer is that of a C struct, with the padding at its end, which the
// kernel's parameters do not have; the control leaves the padding out.
// https://github.com/llvm/llvm-project/pull/172249
// expect: exec-extra-size-mismatch
#include "program.h"

static const char kernel[] = PTX_HEAD
    ".visible .entry work(.param .u64 a, .param .u16 b)\n" PTX_EMPTY_BODY;

struct parameters {
    CUdeviceptr a;
    uint16_t b;
};

int main(void)
{
    begin();
    CUmodule module = load_ptx(kernel);
    CUfunction work = function_of(module, "work");
    struct parameters parameters = {.b = 1};
    CHECK(cuMemAlloc(&parameters.a, 256));
#ifdef VIOLATE
    size_t size = sizeof parameters;
#else
    size_t size = offsetof(struct parameters, b) + sizeof parameters.b;
#endif
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &parameters, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    MISUSE(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(parameters.a));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
