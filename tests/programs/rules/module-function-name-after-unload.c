// The name string of a function outlives its module; the control keeps a copy of it.
// expect: module-function-name-after-unload
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    const char *name = NULL;
    CHECK(cuFuncGetName(&name, function_of(module, "fill")));
    EXPECT(strcmp(name, "fill") == 0);
    char *copy = strdup(name);
    EXPECT(copy != NULL);
    CHECK(cuModuleUnload(module));
    module = load_ptx(PTX_FILL);
    CUfunction function = NULL;
#ifdef VIOLATE
    MISUSE(cuModuleGetFunction(&function, module, name));
#else
    CHECK(cuModuleGetFunction(&function, module, copy));
#endif
    CHECK(cuModuleUnload(module));
    free(copy);
    end();
    return success();
}
