// A carveout of 150 percent; the control restores the default.
// expect: exec-attribute-value-domain
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
#ifdef VIOLATE
    int percent = 150;
#else
    int percent = -1;
#endif
    MISUSE(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                              percent));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
