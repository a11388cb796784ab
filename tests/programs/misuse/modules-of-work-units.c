// Each unit of work compiles kernels of its own, runs them and forgets the modules, as in
// https://github.com/gwoltman/gpuowl/pull/5; the control unloads them.
// expect: module-live-growth
// may: performance-jit-at-run-time
#include "program.h"

static void work(unsigned unit)
{
    char text[512];
    snprintf(text, sizeof text, PTX_HEAD ".visible .const .align 4 .u32 unit = %u;\n"
             ".visible .entry step()\n{\n ret;\n}\n", unit);
    CUmodule module = load_ptx(text);
    launch(function_of(module, "step"), 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
#ifndef VIOLATE
    CHECK(cuModuleUnload(module));
#endif
}

int main(void)
{
    begin();
    for (unsigned unit = 0; unit < 80; unit++)
        work(unit);
    end();
    return success();
}
