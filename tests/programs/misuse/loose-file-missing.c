// Examples load the PTX that a build usually leaves beside them, although the image is in the
// program as well; a build that makes no such file breaks them. The control loads the embedded
// image.
// https://github.com/NVlabs/cuda-oxide/issues/782
// expect: module-file-not-found
#include "program.h"

static CUresult load(CUmodule *module)
{
#ifdef VIOLATE
    return cuModuleLoad(module, "vecadd-that-no-build-made.ptx");
#else
    return cuModuleLoadData(module, PTX_VECTOR_ADD);
#endif
}

int main(void)
{
    begin();
    CUmodule module = NULL;
    if (load(&module) == CUDA_SUCCESS) {
        EXPECT(function_of(module, "vector_add") != NULL);
        CHECK(cuModuleUnload(module));
    }
    end();
    return success();
}
