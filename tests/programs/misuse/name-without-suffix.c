// The kernel of a cubin is looked up by the name that it has in its source; the compiler has
// appended a suffix for its specialisation. The control looks that up.
// https://github.com/triton-lang/triton/issues/4365
// expect: module-symbol-not-found
#include "images.h"

static const char kernels[] = PTX_HEAD
    ".visible .entry matmul_kernel_0d1d2d(.param .u64 a, .param .u64 b, .param .u64 c)\n"
    PTX_EMPTY_BODY;

int main(void)
{
    begin();
    size_t size = 0;
    unsigned char *cubin = link_cubin(kernels, NULL, &size);
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    CUdeviceptr a = 0, b = 0, c = 0;
#ifdef VIOLATE
    const char *name = "matmul_kernel";
#else
    const char *name = "matmul_kernel_0d1d2d";
#endif
    CHECK(cuMemAlloc(&a, 256));
    CHECK(cuMemAlloc(&b, 256));
    CHECK(cuMemAlloc(&c, 256));
    CHECK(cuModuleLoadData(&module, cubin));
    MISUSE(cuModuleGetFunction(&kernel, module, name));
    void *parameters[] = {&a, &b, &c};
    if (kernel != NULL)
        launch(kernel, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    CHECK(cuMemFree(c));
    CHECK(cuMemFree(b));
    CHECK(cuMemFree(a));
    free(cubin);
    end();
    return success();
}
