// Functions are listed into a buffer smaller than their count; in the control it is larger.
// expect: module-enumerate-truncated
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction functions[8] = {NULL};
    unsigned count = 0;
    CHECK(cuModuleGetFunctionCount(&count, module));
    EXPECT(count == 3);
#ifdef VIOLATE
    CHECK(cuModuleEnumerateFunctions(functions, 1, module));
#else
    CHECK(cuModuleEnumerateFunctions(functions, 8, module));
    EXPECT(functions[2] != NULL);
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
