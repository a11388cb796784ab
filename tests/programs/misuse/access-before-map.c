// Access to a reserved range is set before memory is mapped there, and the failure is dropped: the
// device never has access. The control sets it after the mapping.
// https://github.com/ROCm/rocm-systems/pull/10778
// expect: memory-vmm-access-not-set
#include "program.h"

static void set_access(CUdeviceptr address, size_t size)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    MISUSE(cuMemSetAccess(address, size, &access, 1));
}

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
#ifdef VIOLATE
    set_access(address, size);
#endif
    CHECK(cuMemCreate(&memory, size, &wanted, 0));
    CHECK(cuMemMap(address, size, 0, memory, 0));
#ifndef VIOLATE
    set_access(address, size);
#endif
    MISUSE(cuMemsetD8(address, 0, size));
    MISUSE(cuCtxSynchronize());
    CHECK(cuMemUnmap(address, size));
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(address, size));
    end();
    return success();
}
