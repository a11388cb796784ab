// A launch into a destroyed stream; the control destroys it right after the launch, which is
// allowed.
// expect: stream-use-after-destroy
// crashes: SIGSEGV
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifdef VIOLATE
    CHECK(cuStreamDestroy(stream));
    MISUSE(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
#else
    launch(nothing, 1, 32, stream, NULL);
    CHECK(cuStreamDestroy(stream));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
