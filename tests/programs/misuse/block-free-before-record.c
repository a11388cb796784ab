// A caching allocator puts a block into its list before it records the block's event, whose last
// state is "complete", so the block goes to another stream at once. The control records first.
// https://github.com/NVIDIA/cub/pull/156
// expect: memory-race-cross-stream
#include "program.h"

static struct block {
    CUdeviceptr memory;
    CUevent ready;
    int is_free;
} block;

static CUdeviceptr allocate(void)
{
    if (block.is_free && cuEventQuery(block.ready) == CUDA_SUCCESS) {
        block.is_free = 0;
        return block.memory;
    }
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    return memory;
}

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    void *result = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&block.ready, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocHost(&result, 4096));
    CHECK(cuMemAlloc(&block.memory, 4096));
    CHECK(cuMemsetD8Async(block.memory, 1, 4096, first));
    CHECK(cuMemcpyDtoHAsync(result, block.memory, 4096, first));
#ifdef VIOLATE
    /* what another thread does between the two steps of the free */
    block.is_free = 1;
    CUdeviceptr reused = allocate();
    CHECK(cuEventRecord(block.ready, first));
#else
    CHECK(cuEventRecord(block.ready, first));
    block.is_free = 1;
    CUdeviceptr reused = allocate();
#endif
    CHECK(cuMemsetD8Async(reused, 2, 4096, second));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuStreamSynchronize(second));
    if (reused != block.memory)
        CHECK(cuMemFree(reused));
    CHECK(cuMemFree(block.memory));
    CHECK(cuMemFreeHost(result));
    CHECK(cuEventDestroy(block.ready));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
