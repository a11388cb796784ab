// The heap of an allocator is checked for errors in debug builds only: the pointer of one that is
// too large is NULL, and the heap is initialised there. The control's check is always made.
// https://github.com/alpaka-group/mallocMC/issues/110
// expect: errors-result-ignored
#include "program.h"

#ifdef VIOLATE
#define CHECKED_CALL(call) ((void)(call))
#else
#define CHECKED_CALL(call) do { if ((call) != CUDA_SUCCESS) return 0; } while (0)
#endif

static CUdeviceptr set_memory_pool(size_t size)
{
    CUdeviceptr pool = 0;
    CHECKED_CALL(cuMemAlloc(&pool, size));
    return pool;
}

int main(void)
{
    begin();
    const size_t sizes[] = {(size_t)1 << 60, 1 << 20};
    for (int i = 0; i < 2; i++) {
        CUdeviceptr pool = set_memory_pool(sizes[i]);
#ifndef VIOLATE
        if (pool == 0)
            continue;
#endif
        MISUSE(cuMemsetD8(pool, 0, 4096));
        MISUSE(cuMemFree(pool));
    }
    end();
    return success();
}
