// The memory of a view comes from cuMemAllocAsync and is released with cuMemFree when the last
// reference ends, in the belief that this waits for the kernels that use the view. The control
// has a fence before it.
// https://github.com/kokkos/kokkos/issues/9307
// expect: memory-free-pool-pointer-in-use
// may: errors-async-misattributed
#include "program.h"

struct view {
    CUdeviceptr memory;
    uint32_t length;
    int references;
};

static void create(struct view *view, uint32_t length)
{
    view->length = length;
    view->references = 1;
    CHECK(cuMemAllocAsync(&view->memory, length * sizeof length, NULL));
    CHECK(cuStreamSynchronize(NULL));
}

static void release(struct view *view)
{
    if (--view->references > 0)
        return;
#ifndef VIOLATE
    CHECK(cuCtxSynchronize());
#endif
    CHECK(cuMemFree(view->memory));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream instance = NULL;
    struct view view;
    uint32_t start = 1;
    CHECK(cuStreamCreate(&instance, CU_STREAM_NON_BLOCKING));
    create(&view, 1 << 16);
    void *parameters[] = {&view.memory, &start, &view.length};
    view.references++;
    launch(fill, 1, 32, instance, parameters);
    release(&view);
    release(&view);
    CHECK(cuStreamSynchronize(instance));
    CHECK(cuStreamDestroy(instance));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
