/* Managed memory: written by the host, changed by a kernel, read by the host; advised, attached;
 * pointer attributes. */
#include "program.h"

enum { COUNT = 5000 };

int main(void)
{
    begin();
    int supported = 0;
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device));
    if (!supported) {
        printf("no managed memory\n");
        end();
        return success();
    }
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUstream stream = NULL;
    CUdeviceptr managed = 0, plain = 0;
    uint32_t count = COUNT;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuMemAllocManaged(&managed, COUNT * 4, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAlloc(&plain, COUNT * 4));
    CHECK(cuMemsetD32(plain, 5, COUNT));
    CHECK(cuCtxSynchronize());
    uint32_t *values = (uint32_t *)(uintptr_t)managed;
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = i;
    void *parameters[] = {&managed, &plain, &managed, &count};
    launch(add, 8, 128, stream, parameters);
    CHECK(cuStreamSynchronize(stream));
    show_u32("managed", values, COUNT);
    EXPECT_KERNEL(values[0] == 5 && values[COUNT - 1] == COUNT - 1 + 5);

    CUmemorytype type = 0;
    unsigned is_managed = 0;
    CUcontext owner = NULL;
    CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    EXPECT(is_managed);
    CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
    EXPECT(!is_managed);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, plain));
    EXPECT(owner == context);
    CUdeviceptr start = 0;
    size_t size = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *answers[] = {&start, &size};
    CHECK(cuPointerGetAttributes(2, asked, answers, plain + 100));
    EXPECT(start == plain && size >= COUNT * 4);
    printf("pointer attributes agree\n");

    int concurrent = 0;
    CHECK(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device));
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    if (concurrent && SUPPORTED(cuMemAdvise(managed, COUNT * 4,
                                            CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here))) {
        int preferred = -100;
        CHECK(cuMemPrefetchAsync(managed, COUNT * 4, here, 0, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemRangeGetAttribute(&preferred, sizeof preferred,
                                     CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, managed,
                                     COUNT * 4));
        EXPECT(preferred == device);
        CHECK(cuMemAdvise(managed, COUNT * 4, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, here));
        printf("advice taken\n");
    }

    CHECK(cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
    CHECK(cuStreamSynchronize(stream));
    launch(add, 8, 128, stream, parameters);
    CHECK(cuStreamSynchronize(stream));
    EXPECT_KERNEL(values[0] == 10);
    show("after attaching", values[0]);
    CHECK(cuMemFree(managed));
    CHECK(cuMemFree(plain));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
