// Memory is mapped with the size that the user asked for. Unlike that of the allocation, it is not
// a multiple of the granularity. The control maps the size of the allocation.
// https://github.com/microsoft/mscclpp/pull/501
// expect: memory-vmm-map-order
#include "program.h"

int main(void)
{
    begin();
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    size_t granularity = 0;
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle memory = 0;
    CHECK(cuMemGetAllocationGranularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemCreate(&memory, granularity, &wanted, 0));
    CHECK(cuMemAddressReserve(&base, granularity, 0, 0, 0));
#ifdef VIOLATE
    size_t size = 1000;
#else
    size_t size = granularity;
#endif
    if (cuMemMap(base, size, 0, memory, 0) == CUDA_SUCCESS) {
        CHECK(cuMemSetAccess(base, size, &access, 1));
        CHECK(cuMemsetD8(base, 0, 1000));
        CHECK(cuCtxSynchronize());
        CHECK(cuMemUnmap(base, size));
    }
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(base, granularity));
    end();
    return success();
}
