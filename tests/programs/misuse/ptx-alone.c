// A program ships PTX alone, of a toolkit that is newer than the driver, and goes on without the
// kernel when it does not load. The control loads a cubin first and falls back to PTX.
// https://github.com/gwoltman/gpuowl/pull/31
// expect: module-ptx-jit-failure
#include "images.h"

#define NEWER ".version 99.0\n.target sm_70\n.address_size 64\n"

static CUmodule load_kernels(void)
{
    static const char text[] = NEWER ".visible .entry tail_square()\n{\n ret;\n}\n";
    CUmodule module = NULL;
#ifndef VIOLATE
    size_t size = 0;
    static const char older[] = PTX_HEAD ".visible .entry tail_square()\n{\n ret;\n}\n";
    unsigned char *cubin = link_cubin(older, NULL, &size); /* as NVRTC makes it */
    CUresult result = cuModuleLoadData(&module, cubin);
    free(cubin);
    if (result == CUDA_SUCCESS)
        return module;
#endif
    if (cuModuleLoadDataEx(&module, text, 0, NULL, NULL) != CUDA_SUCCESS)
        return NULL;
    return module;
}

int main(void)
{
    begin();
    CUmodule module = load_kernels();
    if (module != NULL) {
        launch(function_of(module, "tail_square"), 1, 32, NULL, NULL);
        CHECK(cuCtxSynchronize());
        CHECK(cuModuleUnload(module));
    }
    end();
    return success();
}
