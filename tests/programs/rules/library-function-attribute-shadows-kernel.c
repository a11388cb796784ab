// An attribute is set to one value on the function and to another on its kernel; the control sets
// the kernel only.
// expect: library-function-attribute-shadows-kernel
#include "program.h"

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    CHECK(cuLibraryLoadData(&library, PTX_NOTHING, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
    CHECK(cuKernelGetFunction(&function, kernel));
#ifdef VIOLATE
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8192));
#endif
    CHECK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 16384, kernel,
                               device));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 4096, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuLibraryUnload(library));
    end();
    return success();
}
