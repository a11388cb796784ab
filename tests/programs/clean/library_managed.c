/* A managed variable of a library: its address is one for host and device. */
#include "program.h"

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUdeviceptr shared = 0;
    size_t size = 0;
    CHECK(cuLibraryLoadData(&library, PTX_MANAGED, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "double_it"));
    CHECK(cuLibraryGetManaged(&shared, &size, library, "both_sides"));
    EXPECT(size == 4);
    volatile uint32_t *value = (volatile uint32_t *)(uintptr_t)shared;
    *value = 21;
    launch((CUfunction)kernel, 1, 1, NULL, NULL);
    CHECK(cuCtxSynchronize());
    EXPECT_KERNEL(*value == 42);
    show("value", *value);
    CHECK(cuLibraryUnload(library));
    end();
    return success();
}
