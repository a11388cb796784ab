// A kernel is launched after its library was unloaded; the control waits, then unloads.
// expect: library-use-after-unload
// replay-skips: cuLaunchKernel
// may-crash: SIGSEGV
// Both were measured on one driver: a crash inside it, and INVALID_HANDLE.
#include "program.h"

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CHECK(cuLibraryLoadData(&library, PTX_NOTHING, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
#ifdef VIOLATE
    CHECK(cuLibraryUnload(library));
    MISUSE(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
#else
    launch((CUfunction)kernel, 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(library));
#endif
    end();
    return success();
}
