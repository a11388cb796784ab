// A variable is asked for with nowhere to write the answer; the control wants the size only.
// expect: module-global-outputs-both-null
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_GLOBALS);
#ifdef VIOLATE
    MISUSE(cuModuleGetGlobal(NULL, NULL, module, "table"));
#else
    size_t size = 0;
    CHECK(cuModuleGetGlobal(NULL, &size, module, "table"));
    EXPECT(size == 16);
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
