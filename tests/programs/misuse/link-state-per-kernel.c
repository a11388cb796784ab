// Each kernel is linked when it is first used, and its link state is forgotten; the control
// destroys it once the module has been loaded.
// https://github.com/arrayfire/arrayfire/pull/2202
// expect: link-state-leak
// may: performance-jit-at-run-time
#include "program.h"

struct kernel {
    CUmodule module;
    CUfunction function;
};

static void build(struct kernel *kernel, const char *ptx, size_t size, const char *name)
{
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t cubin_size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    void *text = (void *)(uintptr_t)ptx;
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, size, name, 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &cubin_size));
    CHECK(cuModuleLoadData(&kernel->module, cubin));
    kernel->function = function_of(kernel->module, name);
#ifndef VIOLATE
    CHECK(cuLinkDestroy(state));
#endif
}

int main(void)
{
    begin();
    struct kernel nothing, fill;
    CUdeviceptr memory = 0;
    uint32_t start = 1, count = 64;
    CHECK(cuMemAlloc(&memory, 256));
    build(&nothing, PTX_NOTHING, sizeof PTX_NOTHING, "nothing");
    launch(nothing.function, 1, 32, NULL, NULL);
    build(&fill, PTX_FILL, sizeof PTX_FILL, "fill");
    void *parameters[] = {&memory, &start, &count};
    launch(fill.function, 1, 64, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(nothing.module));
    CHECK(cuModuleUnload(fill.module));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
