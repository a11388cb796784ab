// A pool keeps free blocks by stream, and waits for a block's stream before it gives the block to
// another one. The forest has destroyed its streams by then. The control's pool is told first.
// https://github.com/NVIDIA/cuml/issues/2632
// expect: stream-use-after-destroy
// may-crash: SIGSEGV
#include "program.h"

enum { MOST = 4, SIZE = 4096 };

struct block {
    CUdeviceptr memory;
    CUstream stream;
};

static struct block free_blocks[MOST];
static int free_count;

static CUdeviceptr allocate(CUstream stream)
{
    CUdeviceptr memory = 0;
    if (free_count == 0) {
        CHECK(cuMemAlloc(&memory, SIZE));
        return memory;
    }
    struct block block = free_blocks[--free_count];
    if (block.stream != stream && block.stream != NULL)
        MISUSE(cuStreamSynchronize(block.stream));
    return block.memory;
}

static void release(CUdeviceptr memory, CUstream stream)
{
    free_blocks[free_count++] = (struct block){memory, stream};
}

#ifndef VIOLATE
static void stream_ends(CUstream stream)
{
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < free_count; i++)
        if (free_blocks[i].stream == stream)
            free_blocks[i].stream = NULL;
}
#endif

static void fit_forest(void)
{
    CUstream streams[MOST];
    CUdeviceptr trees[MOST];
    for (int i = 0; i < MOST; i++) {
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        trees[i] = allocate(streams[i]);
        CHECK(cuMemsetD8Async(trees[i], 0, SIZE, streams[i]));
    }
    for (int i = 0; i < MOST; i++) {
        release(trees[i], streams[i]);
        CHECK(cuStreamSynchronize(streams[i]));
#ifndef VIOLATE
        stream_ends(streams[i]);
#endif
        CHECK(cuStreamDestroy(streams[i]));
    }
}

int main(void)
{
    begin();
    fit_forest();
    CUdeviceptr memory = allocate(NULL);
    CHECK(cuMemsetD8(memory, 0, SIZE));
    release(memory, NULL);
    while (free_count > 0)
        CHECK(cuMemFree(free_blocks[--free_count].memory));
    end();
    return success();
}
