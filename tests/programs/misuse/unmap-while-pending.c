// An allocator unmaps and releases a block as soon as nothing refers to it, behind a kernel that may
// still use it: https://github.com/vllm-project/vllm/pull/43020. The control waits for the stream.
// expect: memory-free-pending-work
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemAccessDesc access = {
        .location = wanted.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    size_t size = 0;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle memory = 0;
    CHECK(cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cuMemCreate(&memory, size, &wanted, 0));
    CHECK(cuMemMap(address, size, 0, memory, 0));
    CHECK(cuMemSetAccess(address, size, &access, 1));
    uint32_t start = 0, count = 0; /* the kernel touches nothing */
    void *parameters[] = {&address, &start, &count};
    launch(fill, 1, 32, stream, parameters);
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuMemUnmap(address, size));
    CHECK(cuMemRelease(memory));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemAddressFree(address, size));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
