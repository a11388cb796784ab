// A reserved address range is set before memory is mapped to it. The control sets it afterwards.
// https://github.com/microsoft/mscclpp/pull/631
// expect: memory-vmm-access-not-set
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
    size_t size = 0;
    CUdeviceptr buffer = 0;
    CUmemGenericAllocationHandle memory = 0;
    CHECK(cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK(cuMemCreate(&memory, size, &wanted, 0));
    CHECK(cuMemAddressReserve(&buffer, size, 0, 0, 0));
#ifdef VIOLATE
    MISUSE(cuMemsetD8(buffer, 0, size));
#endif
    CHECK(cuMemMap(buffer, size, 0, memory, 0));
    CHECK(cuMemSetAccess(buffer, size, &access, 1));
#ifndef VIOLATE
    CHECK(cuMemsetD8(buffer, 0, size));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemUnmap(buffer, size));
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(buffer, size));
    end();
    return success();
}
