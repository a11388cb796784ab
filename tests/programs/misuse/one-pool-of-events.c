// A pinned allocator has one pool of events for all devices, so the event of one is recorded in a
// stream of the other, and the failure is dropped. The control has a pool for each.
// https://github.com/NVIDIA/cuCascade/pull/189
// expect: event-record-context-mismatch
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs
#include "program.h"

struct device {
    CUcontext context;
    CUstream stream;
    CUdeviceptr memory;
};

static CUevent pools[2][4];
static int sizes[2];

static int pool_of(int ordinal UNUSED)
{
#ifdef VIOLATE
    return 0;
#else
    return ordinal;
#endif
}

static void upload(const struct device *devices, int ordinal, const void *slab)
{
    CUevent event = NULL;
    int pool = pool_of(ordinal);
    CHECK(cuCtxSetCurrent(devices[ordinal].context));
    if (sizes[pool] > 0)
        event = pools[pool][--sizes[pool]];
    else
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemcpyHtoDAsync(devices[ordinal].memory, slab, 4096, devices[ordinal].stream));
    MISUSE(cuEventRecord(event, devices[ordinal].stream));
    CHECK(cuStreamSynchronize(devices[ordinal].stream));
    pools[pool][sizes[pool]++] = event;
}

int main(void)
{
    begin();
    struct device devices[2] = {0};
    void *slab = NULL;
    CHECK(cuMemHostAlloc(&slab, 4096, CU_MEMHOSTALLOC_PORTABLE));
    memset(slab, 1, 4096);
    for (int i = 0; i < 2; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&devices[i].context, i));
        CHECK(cuCtxSetCurrent(devices[i].context));
        CHECK(cuStreamCreate(&devices[i].stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc(&devices[i].memory, 4096));
    }
    upload(devices, 0, slab);
    upload(devices, 1, slab);
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(devices[i].context));
        while (sizes[i] > 0)
            CHECK(cuEventDestroy(pools[i][--sizes[i]]));
        CHECK(cuMemFree(devices[i].memory));
        CHECK(cuStreamDestroy(devices[i].stream));
        CHECK(cuDevicePrimaryCtxRelease(i));
    }
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFreeHost(slab));
    end();
    return success();
}
