// A mapping is made accessible to the device that owns it and not to the peer whose collective
// writes there: a driver answers ILLEGAL_ADDRESS at the wait. The control grants access to all
// devices.
// https://github.com/openxla/xla/pull/40852
// expect: memory-vmm-access-not-set
// may: errors-async-misattributed
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs that can access each other
#include "program.h"

static void set_access(CUdeviceptr address, size_t size)
{
    CUmemAccessDesc access[2];
    for (int i = 0; i < 2; i++) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = i;
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
#ifdef VIOLATE
    CHECK(cuMemSetAccess(address, size, access, 1));
#else
    CHECK(cuMemSetAccess(address, size, access, 2));
#endif
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
    CUcontext peer = NULL;
    CHECK(cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cuMemCreate(&memory, size, &wanted, 0));
    CHECK(cuMemMap(address, size, 0, memory, 0));
    set_access(address, size);
    CHECK(cuDevicePrimaryCtxRetain(&peer, 1));
    CHECK(cuCtxSetCurrent(peer));
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    uint32_t start = 1, count = 64;
    void *parameters[] = {&address, &start, &count};
    launch(fill, 1, 64, NULL, parameters);
    MISUSE(cuCtxSynchronize());
#ifndef VIOLATE
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(1));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemUnmap(address, size));
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(address, size));
    end();
#endif
    return success();
}
