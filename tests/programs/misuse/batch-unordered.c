// Blocks of a cache are copied to the host in batches by a stream of their own, which does not wait
// for the stream that fills them; the control lets it wait for an event.
// expect: memory-race-cross-stream
#include "program.h"

enum { BLOCKS = 4, SIZE = 4096 };

int main(void)
{
    begin();
    CUstream compute = NULL, offload = NULL;
    CUevent filled = NULL;
    CUdeviceptr cache = 0;
    unsigned char *host = NULL;
    CHECK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&offload, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&cache, BLOCKS * SIZE));
    CHECK(cuMemAllocHost((void **)&host, BLOCKS * SIZE));
    CHECK(cuMemsetD8Async(cache, 7, BLOCKS * SIZE, compute));
#ifndef VIOLATE
    CHECK(cuEventRecord(filled, compute));
    CHECK(cuStreamWaitEvent(offload, filled, 0));
#endif
    CUdeviceptr targets[BLOCKS], sources[BLOCKS];
    size_t sizes[BLOCKS], index = 0;
    for (int i = 0; i < BLOCKS; i++) {
        targets[i] = (CUdeviceptr)(uintptr_t)(host + i * SIZE);
        sources[i] = cache + i * SIZE;
        sizes[i] = SIZE;
    }
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    SUPPORTED(cuMemcpyBatchAsync(targets, sources, sizes, BLOCKS, &attributes, &index, 1, offload));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree(cache));
    CHECK(cuEventDestroy(filled));
    CHECK(cuStreamDestroy(offload));
    CHECK(cuStreamDestroy(compute));
    end();
    return success();
}
