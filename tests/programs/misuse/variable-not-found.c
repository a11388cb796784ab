// A variable is in a namespace, and asked for without it; the copy to it fails, and nobody looks.
// The control asks for its mangled name.
// expect: module-symbol-not-found
#include "program.h"

PTX_TEXT SETTINGS[] = PTX_HEAD
    ".visible .global .align 4 .u32 _ZN8settings6factorE;\n"
    ".visible .entry use()\n{\n ret;\n}\n";

int main(void)
{
    begin();
    CUmodule module = load_ptx(SETTINGS);
    CUfunction use = function_of(module, "use");
    CUdeviceptr factor = 0;
    uint32_t value = 3;
#ifdef VIOLATE
    cuModuleGetGlobal(&factor, NULL, module, "factor");
#else
    cuModuleGetGlobal(&factor, NULL, module, "_ZN8settings6factorE");
#endif
    cuMemcpyHtoD(factor, &value, sizeof value);
    launch(use, 1, 1, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
