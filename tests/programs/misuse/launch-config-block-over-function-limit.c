// A block larger than the launch bounds of the kernel; the control keeps them.
// expect: launch-config-block-over-function-limit
#include "program.h"

static const char kernel[] = PTX_HEAD
    ".visible .entry bounded() .maxntid 128, 1, 1\n" PTX_EMPTY_BODY;

int main(void)
{
    begin();
    CUmodule module = load_ptx(kernel);
    CUfunction bounded = function_of(module, "bounded");
#ifdef VIOLATE
    unsigned threads = 256;
#else
    unsigned threads = 128;
#endif
    MISUSE(cuLaunchKernel(bounded, 1, 1, 1, threads, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
