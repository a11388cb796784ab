// Memory is mapped and set before the device has access to it; the control gives it access.
// expect: memory-vmm-access-not-set
#include "program.h"

int main(void)
{
    begin();
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    size_t size = 0;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle memory = 0;
    CHECK(cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cuMemCreate(&memory, size, &wanted, 0));
    CHECK(cuMemMap(address, size, 0, memory, 0));
#ifdef VIOLATE
    MISUSE(cuMemsetD8(address, 1, size));
#else
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CHECK(cuMemSetAccess(address, size, &access, 1));
    CHECK(cuMemsetD8(address, 1, size));
    CHECK(cuCtxSynchronize());
#endif
    CHECK(cuMemUnmap(address, size));
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(address, size));
    end();
    return success();
}
