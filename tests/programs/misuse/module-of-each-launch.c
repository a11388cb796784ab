// Each launch loads the module of its kernel and unloads it; the control loads it once.
// https://github.com/chapel-lang/chapel/pull/21346
// expect: performance-module-reloaded
// may: performance-jit-at-run-time
#include "program.h"

static CUfunction load_function(CUmodule *module, const char *name)
{
#ifndef VIOLATE
    if (*module)
        return function_of(*module, name);
#endif
    *module = load_ptx(PTX_FILL);
    return function_of(*module, name);
}

static void launch_by_name(CUmodule *module, const char *name, CUdeviceptr memory)
{
    uint32_t start = 1, count = 64;
    void *parameters[] = {&memory, &start, &count};
    launch(load_function(module, name), 1, 64, NULL, parameters);
    CHECK(cuCtxSynchronize());
#ifdef VIOLATE
    CHECK(cuModuleUnload(*module));
#endif
}

int main(void)
{
    begin();
    CUmodule module = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    for (int step = 0; step < 12; step++)
        launch_by_name(&module, "fill", memory);
#ifndef VIOLATE
    CHECK(cuModuleUnload(module));
#endif
    CHECK(cuMemFree(memory));
    end();
    return success();
}
