// A part of a mapping is unmapped; the control unmaps it as a whole.
// expect: memory-vmm-map-order
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
    CHECK(cuMemAddressReserve(&address, 2 * size, 0, 0, 0));
    CHECK(cuMemCreate(&memory, 2 * size, &wanted, 0));
    CHECK(cuMemMap(address, 2 * size, 0, memory, 0));
#ifdef VIOLATE
    MISUSE(cuMemUnmap(address, size));
#endif
    CHECK(cuMemUnmap(address, 2 * size));
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(address, 2 * size));
    end();
    return success();
}
