/* Stream-ordered memory from the default pool and from a pool of the program's own. */
#include "program.h"

enum { COUNT = 3000 };

int main(void)
{
    begin();
    int supported = 0;
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
    if (!supported) {
        printf("no memory pools\n");
        end();
        return success();
    }
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    static uint32_t out[COUNT];
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemoryPool by_default = NULL, own = NULL;
    CHECK(cuDeviceGetDefaultMemPool(&by_default, device));
    CUmemoryPool in_use = NULL;
    CHECK(cuDeviceGetMemPool(&in_use, device));
    EXPECT(in_use == by_default);
    CUmemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CHECK(cuMemPoolCreate(&own, &properties));
    cuuint64_t threshold = 1 << 20, got = 0;
    CHECK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &got));
    EXPECT(got == threshold);

    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemAccess_flags allowed = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CHECK(cuMemPoolSetAccess(own, &access, 1));
    CHECK(cuMemPoolGetAccess(&allowed, own, &access.location));
    EXPECT(allowed == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(cuDeviceSetMemPool(device, own));
    CHECK(cuDeviceSetMemPool(device, by_default));

    for (int round = 0; round < 3; round++) {
        CUdeviceptr memory = 0;
        if (round == 1)
            CHECK(cuMemAllocFromPoolAsync(&memory, sizeof out, own, stream));
        else
            CHECK(cuMemAllocAsync(&memory, sizeof out, stream));
        CHECK(cuMemsetD32Async(memory, 0, COUNT, stream));
        uint32_t start = (uint32_t)round, count = COUNT;
        void *parameters[] = {&memory, &start, &count};
        launch(fill, 8, 128, stream, parameters);
        CHECK(cuMemcpyDtoHAsync(out, memory, sizeof out, stream));
        CHECK(cuMemFreeAsync(memory, stream));
        CHECK(cuStreamSynchronize(stream));
        show_u32("fill", out, COUNT);
        EXPECT_KERNEL(out[COUNT - 1] == start + COUNT - 1);
    }
    CHECK(cuMemPoolTrimTo(own, 0));
    CHECK(cuMemPoolDestroy(own));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
