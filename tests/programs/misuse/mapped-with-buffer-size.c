// Memory of another process is mapped with the size of the buffer that the user registered, instead
// of the size of the allocation that holds it. The control maps the allocation.
// https://github.com/microsoft/mscclpp/pull/501
// expect: memory-vmm-map-order
#include "program.h"

struct registration {
    CUmemGenericAllocationHandle handle;
    size_t allocation_size, buffer_size;
};

static CUresult map(const struct registration *registration, CUdeviceptr address)
{
#ifdef VIOLATE
    size_t size = registration->buffer_size;
#else
    size_t size = registration->allocation_size;
#endif
    return cuMemMap(address, size, 0, registration->handle, 0);
}

int main(void)
{
    begin();
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    struct registration registration = {.buffer_size = 100000};
    CUdeviceptr address = 0;
    CHECK(cuMemGetAllocationGranularity(&registration.allocation_size, &wanted,
                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemCreate(&registration.handle, registration.allocation_size, &wanted, 0));
    CHECK(cuMemAddressReserve(&address, registration.allocation_size, 0, 0, 0));
    if (map(&registration, address) == CUDA_SUCCESS)
        CHECK(cuMemUnmap(address, registration.allocation_size));
    CHECK(cuMemAddressFree(address, registration.allocation_size));
    CHECK(cuMemRelease(registration.handle));
    end();
    return success();
}
