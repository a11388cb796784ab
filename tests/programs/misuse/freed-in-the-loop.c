// The buffers of all rounds are freed at the end of each round; the control frees them after the
// loop. No result is looked at.
// https://github.com/JHU-EP-Intro2GPU/EN605.617/pull/9
// expect: memory-double-free memory-use-after-free-kernel-argument
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr block_ids = 0, grid_sizes = 0;
    uint32_t start = 0, count = 0; /* the kernel touches nothing */
    CHECK(cuMemAlloc(&block_ids, 4096));
    CHECK(cuMemAlloc(&grid_sizes, 4096));
    for (unsigned round = 0; round < 2; round++) {
        void *ids[] = {&block_ids, &start, &count};
        void *sizes[] = {&grid_sizes, &start, &count};
        cuLaunchKernel(fill, 1, 1, 1, 32 << round, 1, 1, 0, NULL, ids, NULL);
        cuLaunchKernel(fill, 1, 1, 1, 32 << round, 1, 1, 0, NULL, sizes, NULL);
        cuCtxSynchronize();
#ifdef VIOLATE
        cuMemFree(block_ids);
        cuMemFree(grid_sizes);
#endif
    }
#ifndef VIOLATE
    cuMemFree(block_ids);
    cuMemFree(grid_sizes);
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
