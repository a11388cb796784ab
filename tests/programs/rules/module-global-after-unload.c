// A copy to a variable of a module that was unloaded; the control copies before the unload.
// expect: module-global-after-unload
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_GLOBALS);
    CUdeviceptr table = 0;
    size_t size = 0;
    uint32_t values[4] = {1, 2, 3, 4};
    CHECK(cuModuleGetGlobal(&table, &size, module, "table"));
    EXPECT(size == sizeof values);
#ifdef VIOLATE
    CHECK(cuModuleUnload(module));
    MISUSE(cuMemcpyHtoD(table, values, sizeof values));
#else
    CHECK(cuMemcpyHtoD(table, values, sizeof values));
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
