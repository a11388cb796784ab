/* Virtual memory management: reserve, create, map, set access, use, unmap, release, free the
 * addresses. */
#include "program.h"

int main(void)
{
    begin();
    int supported = 0;
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               device));
    if (!supported) {
        printf("no virtual memory management\n");
        end();
        return success();
    }
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    size_t granularity = 0;
    CHECK(cuMemGetAllocationGranularity(&granularity, &properties,
                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT(granularity > 0);
    show("granularity", granularity);

    CUdeviceptr range = 0;
    CUmemGenericAllocationHandle halves[2];
    CHECK(cuMemAddressReserve(&range, 2 * granularity, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuMemCreate(&halves[i], granularity, &properties, 0));
        CHECK(cuMemMap(range + i * granularity, granularity, 0, halves[i], 0));
    }
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(range, 2 * granularity, &access, 1));
    unsigned long long allowed = 0;
    CHECK(cuMemGetAccess(&allowed, &access.location, range));
    EXPECT(allowed == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    CHECK(cuMemsetD8(range, 5, 2 * granularity));
    unsigned char bytes[8];
    CHECK(cuMemcpyDtoH(bytes, range + granularity - 4, sizeof bytes)); /* across the two mappings */
    EXPECT(bytes[0] == 5 && bytes[7] == 5);
    show("byte behind the seam", bytes[4]);
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        CHECK(cuMemUnmap(range + i * granularity, granularity));
        CHECK(cuMemRelease(halves[i]));
    }
    CHECK(cuMemAddressFree(range, 2 * granularity));
    end();
    return success();
}
