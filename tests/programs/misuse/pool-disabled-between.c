// Whether memory goes back to the pool or to the driver is decided by a switch that says whether
// the pool is in use. The switch is changed between the allocation and the release, so the driver
// is to free a chunk inside of a block. The control's pool is asked whether the memory is its own.
// https://github.com/sonots/cumo/pull/173
// expect: memory-free-wrong-kind
#include "program.h"

enum { BLOCK = 8192 };

static CUdeviceptr block;
static size_t used;
static int is_enabled;

static CUdeviceptr allocate(size_t size)
{
    CUdeviceptr memory = 0;
    if (!is_enabled) {
        CHECK(cuMemAlloc(&memory, size));
        return memory;
    }
    if (block == 0)
        CHECK(cuMemAlloc(&block, BLOCK));
    memory = block + used;
    used += size;
    return memory;
}

static void release(CUdeviceptr memory)
{
#ifdef VIOLATE
    if (is_enabled)
        return;
#else
    if (memory - block < BLOCK)
        return;
#endif
    MISUSE(cuMemFree(memory));
}

int main(void)
{
    begin();
    is_enabled = 1;
    CUdeviceptr head = allocate(BLOCK / 2), tail = allocate(BLOCK / 2);
    CHECK(cuMemsetD8(head, 0, BLOCK / 2));
    CHECK(cuMemsetD8(tail, 0, BLOCK / 2));
    release(head);
    is_enabled = 0;
    CUdeviceptr single = allocate(64);
    release(single);
    release(tail);
    CHECK(cuMemFree(block));
    end();
    return success();
}
