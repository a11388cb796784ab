// A function is launched in a stream of another context, which is current; the control launches the
// function of that context.
// expect: exec-stream-context-mismatch
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUcontext other = NULL;
    CHECK(cuCtxCreate(&other, NULL, 0, device));
    CUmodule second = load_ptx(PTX_NOTHING);
    CUfunction theirs = function_of(second, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifdef VIOLATE
    CUfunction function = nothing;
    (void)theirs;
#else
    CUfunction function = theirs;
    (void)nothing;
#endif
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(second));
    CHECK(cuCtxDestroy(other));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
