// The promise that the code stays in memory is made for a file; the control makes and keeps it for
// a buffer.
// expect: library-preserved-image-freed
#include "program.h"

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUlibraryOption options[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *values[] = {(void *)1};
#ifdef VIOLATE
    char path[64];
    write_temporary(path, PTX_FILL, strlen(PTX_FILL));
    CUresult result = cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, options, values, 1);
    if (result == CUDA_SUCCESS)
        CHECK(cuLibraryUnload(library));
    EXPECT(unlink(path) == 0);
#else
    CUkernel kernel = NULL;
    char *buffer = strdup(PTX_FILL);
    EXPECT(buffer != NULL);
    CHECK(cuLibraryLoadData(&library, buffer, NULL, NULL, 0, options, values, 1));
    CHECK(cuLibraryGetKernel(&kernel, library, "fill"));
    CHECK(cuLibraryUnload(library));
    free(buffer);
#endif
    end();
    return success();
}
