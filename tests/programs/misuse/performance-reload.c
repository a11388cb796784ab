// One image is loaded a hundred times; the control loads it once.
// expect: performance-module-reloaded
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    for (int i = 0; i < 100; i++) {
#ifdef VIOLATE
        CHECK(cuModuleUnload(module));
        module = load_ptx(PTX_NOTHING);
#endif
    }
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
