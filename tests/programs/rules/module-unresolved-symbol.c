// Loads PTX with an undefined variable; the control links the input that defines it.
// expect: module-unresolved-symbol
#include "images.h"

int main(void)
{
    begin();
    CUmodule module = NULL;
#ifdef VIOLATE
    /* measured: a success, until the variable is needed */
    CUresult result = cuModuleLoadData(&module, PTX_EXTERN_USER);
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    size_t size = 0;
    unsigned char *cubin = link_cubin(PTX_EXTERN_USER, PTX_EXTERN_OWNER, &size);
    CHECK(cuModuleLoadData(&module, cubin));
    free(cubin);
    launch(function_of(module, "bump"), 1, 1, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
