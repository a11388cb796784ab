// Passes a CUkernel where only a CUfunction may be; the control casts it for a launch and an
// occupancy query.
// expect: library-kernel-as-function
#include "program.h"

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CHECK(cuLibraryLoadData(&library, PTX_NOTHING, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
#ifdef VIOLATE
    MISUSE(cuFuncSetAttribute((CUfunction)kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              4096));
#else
    int blocks = 0;
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)kernel, 32, 0));
    launch((CUfunction)kernel, 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
#endif
    CHECK(cuLibraryUnload(library));
    end();
    return success();
}
