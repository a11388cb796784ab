// A device object is freed before the kernel that was built with it, and takes the context along;
// the control's kernels hold a reference to their device.
// https://github.com/libocca/occa/issues/58
// expect: context-resource-after-destroy
#include "program.h"

struct gpu {
    CUcontext context;
    int references;
};

struct kernel {
    struct gpu *gpu;
    CUmodule module;
};

static void drop(struct gpu *gpu)
{
    if (--gpu->references == 0)
        CHECK(cuCtxDestroy(gpu->context));
}

static void build(struct kernel *kernel, struct gpu *gpu)
{
    kernel->gpu = gpu;
    kernel->module = load_ptx(PTX_NOTHING);
#ifndef VIOLATE
    gpu->references++;
#endif
}

static void free_kernel(struct kernel *kernel)
{
    MISUSE(cuModuleUnload(kernel->module));
#ifndef VIOLATE
    drop(kernel->gpu);
#endif
}

int main(void)
{
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    struct gpu gpu = {.references = 1};
    struct kernel kernel;
    CHECK(cuCtxCreate(&gpu.context, NULL, 0, device));
    build(&kernel, &gpu);
    launch(function_of(kernel.module, "nothing"), 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
    drop(&gpu);
    free_kernel(&kernel);
    return success();
}
