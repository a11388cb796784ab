// The function of one context is launched in another; the control launches the kernel itself in
// each.
// expect: library-global-wrong-context
// may: exec-null-stream-context
// needs: two-contexts
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CUcontext first = NULL, second = NULL;
    CHECK(cuCtxCreate(&first, NULL, 0, device));
    CHECK(cuCtxCreate(&second, NULL, 0, device));
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CHECK(cuLibraryLoadData(&library, PTX_NOTHING, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
    CHECK(cuCtxSetCurrent(first));
#ifdef VIOLATE
    CUfunction function = NULL;
    CHECK(cuKernelGetFunction(&function, kernel)); /* the one of the first context */
    CHECK(cuCtxSetCurrent(second));
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
#else
    launch((CUfunction)kernel, 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(second));
    launch((CUfunction)kernel, 1, 32, NULL, NULL);
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(library));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxDestroy(first));
    return success();
}
