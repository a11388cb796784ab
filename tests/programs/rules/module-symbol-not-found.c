// A function that is not there is asked for and launched; the control only asks for the optional
// one.
// expect: module-symbol-not-found
// may: errors-result-ignored
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction function = NULL;
    CUresult result = cuModuleGetFunction(&function, module, "nothing_at_all");
#ifdef VIOLATE
    (void)result;
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
#else
    if (result != CUDA_SUCCESS)
        CHECK(cuModuleGetFunction(&function, module, "nothing"));
    launch(function, 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
