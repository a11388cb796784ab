/* Managed memory prefetched and discarded in batches. */
#include "program.h"

enum { BYTES = 2 << 20 };

int main(void)
{
    begin();
    CUdeviceptr memory[2] = {0, 0};
    CUstream stream = NULL;
    size_t sizes[2] = {BYTES, BYTES}, first[1] = {0};
    CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    int concurrent = 0;
    CHECK(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        CHECK(cuMemAllocManaged(&memory[i], BYTES, CU_MEM_ATTACH_GLOBAL));
    if (concurrent && SUPPORTED(cuMemPrefetchBatchAsync(memory, sizes, 2, &there, first, 1, 0,
                                                        stream))) {
        CHECK(cuMemsetD32Async(memory[1], 3, BYTES / 4, stream));
        (void)SUPPORTED(cuMemDiscardBatchAsync(memory, sizes, 1, 0, stream));
        (void)SUPPORTED(cuMemDiscardAndPrefetchBatchAsync(memory, sizes, 1, &there, first, 1, 0,
                                                          stream));
        CHECK(cuStreamSynchronize(stream));
        int mostly_read = -1, preferred = -1;
        void *answers[2] = {&mostly_read, &preferred};
        size_t lengths[2] = {sizeof mostly_read, sizeof preferred};
        CUmem_range_attribute wanted[2] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                           CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
        if (SUPPORTED(cuMemRangeGetAttributes(answers, lengths, wanted, 2, memory[1], BYTES)))
            printf("mostly read: %d, preferred at %d\n", mostly_read, preferred);
        uint32_t value = 0;
        CHECK(cuMemcpyDtoH(&value, memory[1] + BYTES - 4, sizeof value));
        show("value", value);
    }
    for (int i = 0; i < 2; i++)
        CHECK(cuMemFree(memory[i]));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
