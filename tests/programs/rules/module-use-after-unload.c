// A function is asked of a module that was unloaded; the control asks the module loaded again.
// expect: module-use-after-unload
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction function = NULL;
    CHECK(cuModuleUnload(module));
#ifdef VIOLATE
    MISUSE(cuModuleGetFunction(&function, module, "fill"));
#else
    module = load_ptx(PTX_FILL); /* perhaps the same number, but another module */
    CHECK(cuModuleGetFunction(&function, module, "fill"));
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
