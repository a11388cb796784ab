// A buffer grows: more memory is mapped behind it, but the device keeps access to its old size only.
// The control gives it access to all of it.
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
        .location = wanted.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    size_t size = 0;
    CUdeviceptr buffer = 0;
    CUmemGenericAllocationHandle first = 0, second = 0;
    CHECK(cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&buffer, 2 * size, 0, 0, 0));
    CHECK(cuMemCreate(&first, size, &wanted, 0));
    CHECK(cuMemMap(buffer, size, 0, first, 0));
    CHECK(cuMemSetAccess(buffer, size, &access, 1));
    CHECK(cuMemsetD8(buffer, 1, size));
    CHECK(cuMemCreate(&second, size, &wanted, 0));
    CHECK(cuMemMap(buffer + size, size, 0, second, 0));
#ifdef VIOLATE
    CHECK(cuMemSetAccess(buffer, size, &access, 1));
    MISUSE(cuMemsetD8(buffer, 1, 2 * size));
#else
    CHECK(cuMemSetAccess(buffer, 2 * size, &access, 1));
    CHECK(cuMemsetD8(buffer, 1, 2 * size));
    CHECK(cuCtxSynchronize());
#endif
    CHECK(cuMemUnmap(buffer, size));
    CHECK(cuMemUnmap(buffer + size, size));
    CHECK(cuMemRelease(second));
    CHECK(cuMemRelease(first));
    CHECK(cuMemAddressFree(buffer, 2 * size));
    end();
    return success();
}
