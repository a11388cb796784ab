// A library's module is unloaded as if it were the program's; the control unloads the library only.
// expect: module-unload-library-owned
#include "program.h"

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUmodule module = NULL;
    CHECK(cuLibraryLoadData(&library, PTX_FILL, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetModule(&module, library));
    EXPECT(module != NULL);
#ifdef VIOLATE
    MISUSE(cuModuleUnload(module));
#endif
    CHECK(cuLibraryUnload(library));
    end();
    return success();
}
