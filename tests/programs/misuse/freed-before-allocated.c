// An allocator's synchronous function allocates in the null stream and does not wait; its memory
// is freed in a non-blocking stream, perhaps before it is allocated. The control waits.
// https://github.com/rapidsai/rmm/issues/2156
// expect: memory-pool-access-unordered
#include "program.h"

static CUdeviceptr allocate_sync(size_t bytes)
{
    CUdeviceptr memory = 0;
    CHECK(cuMemAllocAsync(&memory, bytes, NULL));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(NULL));
#endif
    return memory;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = allocate_sync(256);
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
