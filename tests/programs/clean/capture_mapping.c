/* Captures beside which memory is unmapped and mapped, and a context is made: a recorder that
 * prepares new memory and contexts leaves captures of every mode alone. */
#include "program.h"

enum { COUNT = 64 };

static uint32_t values[COUNT];

/* New memory, mapped for the device; its handle is released at once. */
static void map_at(CUdeviceptr address, size_t size)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, size, &properties, 0));
    CHECK(cuMemMap(address, size, 0, handle, 0));
    CHECK(cuMemRelease(handle));
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(address, size, &access, 1));
}

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
    enum { SIZE = 2 << 20 };
    CUdeviceptr range = 0, memory = 0;
    CUstream stream = NULL, other = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof values));
    CHECK(cuMemAddressReserve(&range, 2 * SIZE, 0, 0, 0));
    map_at(range, SIZE);
    map_at(range + SIZE, SIZE);
    const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED};
    for (uint32_t mode = 0; mode < 3; mode++) {
        CHECK(cuMemsetD32Async(range, mode, 2 * SIZE / sizeof mode, other));
        CHECK(cuStreamSynchronize(other));
        CHECK(cuMemsetD32Async(range, mode + 1, COUNT, other));
        CHECK(cuStreamBeginCapture(stream, modes[mode]));
        CHECK(cuMemsetD32Async(memory, mode + 7, COUNT, stream));
        CHECK(cuMemUnmap(range + SIZE, SIZE));
        map_at(range + SIZE, SIZE);
        CUcontext second = NULL;
        CHECK(cuCtxCreate(&second, NULL, 0, device));
        CHECK(cuCtxSetCurrent(context));
        CUgraph graph = NULL;
        CUgraphExec executable = NULL;
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuCtxDestroy(second));
        CHECK(cuGraphInstantiate(&executable, graph, 0));
        CHECK(cuGraphLaunch(executable, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH(values, memory, sizeof values));
        show_u32("from the graph", values, COUNT);
        CHECK(cuGraphExecDestroy(executable));
        CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuStreamSynchronize(other));
    CHECK(cuMemUnmap(range, 2 * SIZE));
    CHECK(cuMemAddressFree(range, 2 * SIZE));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(other));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
