// A binding has one way to launch a kernel, which is not the cooperative one, and a kernel that
// synchronises its grid is launched like any other. The control asks for a cooperative launch.
// https://github.com/inducer/pycuda/issues/253
// expect: launch-config-cooperative-missing
#include "program.h"

struct function {
    CUfunction handle;
    int is_cooperative;
};

static void call(const struct function *function, unsigned grid, unsigned block, void **parameters)
{
    if (function->is_cooperative)
        CHECK(cuLaunchCooperativeKernel(function->handle, grid, 1, 1, block, 1, 1, 0, NULL,
                                        parameters));
    else
        launch(function->handle, grid, block, NULL, parameters);
}

int main(void)
{
    begin();
    CUmodule plain = load_ptx(PTX_FILL), synchronised = load_ptx(PTX_GRID_BARRIER);
    struct function fill = {.handle = function_of(plain, "fill")};
    struct function synced = {.handle = function_of(synchronised, "synced")};
#ifndef VIOLATE
    synced.is_cooperative = 1;
#endif
    CUdeviceptr memory = 0;
    uint32_t start = 0, count = 64;
    CHECK(cuMemAlloc(&memory, count * sizeof start));
    void *values[] = {&memory, &start, &count}, *workspace[] = {&memory};
    call(&fill, 1, 64, values);
    call(&synced, 2, 32, workspace);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(synchronised));
    CHECK(cuModuleUnload(plain));
    end();
    return success();
}
