// A function that should free a pointer and then clear it clears it first, and so frees 0. The
// control frees first.
// https://github.com/hornet-gt/hornetsnest/issues/14
// expect: memory-leak
#include "program.h"

static void free_and_clear(CUdeviceptr *memory)
{
#ifdef VIOLATE
    *memory = 0;
    CHECK(cuMemFree(*memory));
#else
    CHECK(cuMemFree(*memory));
    *memory = 0;
#endif
}

int main(void)
{
    begin();
    for (int step = 0; step < 20; step++) {
        CUdeviceptr queue = 0;
        CHECK(cuMemAlloc(&queue, 1 << 16));
        CHECK(cuMemsetD8(queue, 0, 1 << 16));
        free_and_clear(&queue);
    }
    end();
    return success();
}
