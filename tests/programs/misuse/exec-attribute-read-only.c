// The number of registers is set on a function; the control asks for it.
// expect: exec-attribute-read-only
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
#ifdef VIOLATE
    MISUSE(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_NUM_REGS, 32));
#else
    int registers = 0;
    CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, nothing));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
