/* What the driver says about addresses of device, pinned, managed and pool memory; attributes of a
 * pool. */
#include "program.h"

static void describe(const char *label, CUdeviceptr address)
{
    CUcontext owner = NULL;
    CUdeviceptr start = 0;
    unsigned kind = 0, managed = 0;
    int ordinal = -1;
    size_t size = 0;
    CHECK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    CHECK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
    CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    EXPECT(ordinal == 0 && start <= address && address < start + size);
    printf("%s: type %u, managed %u\n", label, kind, managed);

    unsigned kind_again = 0;
    CUcontext owner_again = NULL;
    void *answers[2] = {&kind_again, &owner_again};
    CUpointer_attribute wanted[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                     CU_POINTER_ATTRIBUTE_CONTEXT};
    CHECK(cuPointerGetAttributes(2, wanted, answers, address));
    EXPECT(kind_again == kind && owner_again == owner);
}

int main(void)
{
    begin();
    CUdeviceptr device_memory = 0, managed = 0, pooled = 0, device_view = 0;
    void *pinned = NULL, *host_view = NULL;
    CUstream stream = NULL;
    CUmemoryPool pool = NULL, found = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc(&device_memory, 4096));
    CHECK(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    describe("device", device_memory + 100);
    describe("pinned", (CUdeviceptr)(uintptr_t)pinned + 100);
    describe("managed", managed);
    CHECK(cuPointerGetAttribute(&device_view, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                (CUdeviceptr)(uintptr_t)pinned));
    CHECK(cuPointerGetAttribute(&host_view, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                (CUdeviceptr)(uintptr_t)pinned));
    EXPECT(host_view == pinned && device_view != 0);
    int on = 1;
    CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device_memory));

    CUmemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuMemPoolCreate(&pool, &props));
    cuuint64_t threshold = 1 << 20, kept = 0;
    int reuse = 0, reused = 1;
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reused));
    EXPECT(kept == threshold && reused == 0);
    show("release threshold", kept);
    CHECK(cuMemAllocFromPoolAsync(&pooled, 4096, pool, stream));
    CHECK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled));
    EXPECT(found == pool);
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &kept));
    EXPECT(kept >= 4096);
    CHECK(cuMemFreeAsync(pooled, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolDestroy(pool));

    CHECK(cuMemFree(managed));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(device_memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
