// A module is unloaded twice; the control loads one image twice and unloads each module once.
// expect: module-double-unload
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
#ifdef VIOLATE
    CHECK(cuModuleUnload(module));
    MISUSE(cuModuleUnload(module));
#else
    CUmodule second = load_ptx(PTX_FILL);
    CHECK(cuModuleUnload(module));
    CHECK(cuModuleUnload(second));
#endif
    end();
    return success();
}
