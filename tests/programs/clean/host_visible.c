/* Host memory that the device reads without a copy call: written by the host between launches and
 * operations, freed, given out again, registered, managed, seen by graphs and by every form of
 * launch. What the device saw is read back with copies from device addresses. Long ranges are
 * changed in a few places only; one is longer than the recorder's limit. */
// may: performance-pageable-copy
#include "program.h"

#include <sys/mman.h>

enum {
    COUNT = 50000,
    BYTES = COUNT * 4,
    REGISTERED = 256 << 10,
    LONG = 65 << 20,
    WAYS = 5,
};

static uint32_t values[COUNT];
static CUfunction add, fill;
static CUdeviceptr sum;

/* What the device sees at an address. */
static void show_seen(const char *label, CUdeviceptr address)
{
    memset(values, 0, BYTES);
    CHECK(cuMemcpyDtoH(values, address, BYTES));
    show_u32(label, values, COUNT);
}

/* sum = source + source, on a stream. */
static void add_twice(CUdeviceptr source, CUstream stream)
{
    uint32_t count = COUNT;
    void *parameters[] = {&source, &source, &sum, &count};
    launch(add, 8, 128, stream, parameters);
}

/* The host writes, a kernel reads; the kernel writes, the host reads and writes the old values
 * again. */
static void between_launches(const char *label, uint32_t *memory, CUdeviceptr view)
{
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t i = 0; i < COUNT; i += round * 7)
            memory[i] = i + round;
        add_twice(view, stream);
        CHECK(cuStreamSynchronize(stream));
        show_seen(label, view);
        show_seen("twice that", sum);
        EXPECT_KERNEL(values[COUNT - COUNT % 7] == 2 * (memory[COUNT - COUNT % 7]));
    }
    memset(memory, 0, BYTES);
    uint32_t start = 77, count = COUNT;
    void *parameters[] = {&view, &start, &count};
    add_twice(view, stream);
    launch(fill, 8, 128, stream, parameters);
    CHECK(cuStreamSynchronize(stream));
    EXPECT_KERNEL(memory[1] == 78);
    memset(memory, 0, BYTES);
    add_twice(view, stream);
    CHECK(cuStreamSynchronize(stream));
    show_seen("zeros again", view);
    show_seen("their sum", sum);
    EXPECT_KERNEL(values[1] == 0 && values[COUNT - 1] == 0);
    CHECK(cuStreamDestroy(stream));
}

/* A launch that is captured reads what the memory holds when the graph is launched. */
static void in_a_graph(uint32_t *memory, CUdeviceptr view)
{
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memory[5] = 1;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    add_twice(view, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (uint32_t round = 1; round <= 2; round++) {
        memory[5] = 500 * round;
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        show_seen("in a graph", view);
        show_seen("twice that", sum);
        EXPECT_KERNEL(values[5] == 1000 * round);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
}

/* Operations on memory that no kernel has used: copies by the device read it. */
static void by_copies(uint32_t *memory, CUdeviceptr view)
{
    CUdeviceptr copy = 0;
    CHECK(cuMemAlloc(&copy, BYTES));
    for (uint32_t i = 0; i < COUNT; i++)
        memory[i] = 3 * i;
    CHECK(cuMemcpyDtoD(copy, view, BYTES));
    CHECK(cuCtxSynchronize());
    show_seen("copied by the device", copy);
    EXPECT(values[COUNT - 1] == 3 * (COUNT - 1));
    CHECK(cuMemsetD32(view, 9, COUNT));
    CHECK(cuCtxSynchronize());
    EXPECT(memory[COUNT - 1] == 9);
    memory[0] = 10;
    CHECK(cuMemcpyDtoD(copy, view, BYTES));
    CHECK(cuCtxSynchronize());
    show_seen("set by the device and the host", copy);
    EXPECT(values[0] == 10 && values[1] == 9);
    CHECK(cuMemFree(copy));
}

/* A copy that a struct describes reads managed memory that the host has written. */
static void by_described_copy(uint32_t *memory, CUdeviceptr managed)
{
    CUDA_MEMCPY2D plane;
    memset(&plane, 0, sizeof plane);
    plane.srcMemoryType = plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    plane.srcDevice = managed;
    plane.dstDevice = sum;
    plane.WidthInBytes = 4;
    plane.Height = 1;
    memory[0] = 11;
    CHECK(cuMemcpy2D(&plane));
    CHECK(cuCtxSynchronize());
    show_seen("copied as described", sum);
    EXPECT(values[0] == 11);
}

/* One way to write 7 into the first word of memory that host and device share. */
static int write_word(int way, uint32_t *memory, CUdeviceptr view, CUdeviceptr seven,
                      CUstream stream)
{
    CUDA_MEMCPY2D plane;
    memset(&plane, 0, sizeof plane);
    plane.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    plane.srcDevice = seven;
    plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    plane.dstDevice = view;
    plane.WidthInBytes = 4;
    plane.Height = 1;
    CUDA_MEMCPY3D_BATCH_OP box;
    CUmemcpyAttributes how;
    memset(&box, 0, sizeof box);
    memset(&how, 0, sizeof how);
    how.srcAccessOrder = box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = seven;
    box.dst.op.ptr.ptr = view;
    box.extent.width = 4;
    box.extent.height = box.extent.depth = 1;
    size_t size = 4, first = 0;
    switch (way) {
    case 0:
        plane.dstMemoryType = CU_MEMORYTYPE_HOST;
        plane.dstHost = memory;
        return SUPPORTED(cuMemcpy2DAsync(&plane, stream));
    case 1:
        return SUPPORTED(cuMemcpy2DAsync(&plane, stream));
    case 2:
        plane.dstMemoryType = CU_MEMORYTYPE_HOST;
        plane.dstHost = memory;
        return SUPPORTED(cuMemcpy2D(&plane));
    case 3:
        return SUPPORTED(cuMemcpyBatchAsync(&view, &seven, &size, 1, &how, &first, 1, stream));
    default:
        return SUPPORTED(cuMemcpy3DBatchAsync(1, &box, 0, stream));
    }
}

/* The host consumes what the device has written: the old value is back. */
static void written_and_consumed(uint32_t *memory, CUdeviceptr view, int ways)
{
    CUstream stream = NULL;
    CUdeviceptr seven = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&seven, 4));
    CHECK(cuMemsetD32(seven, 7, 1));
    memset(memory, 0, BYTES);
    CHECK(cuMemcpyDtoD(sum, view, BYTES));
    CHECK(cuCtxSynchronize());
    for (int way = 0; way < ways; way++) {
        if (!write_word(way, memory, view, seven, stream))
            continue;
        if (way != 2)
            CHECK(cuStreamSynchronize(stream));
        EXPECT(memory[0] == 7);
        memory[0] = 0;
        CHECK(cuMemcpyDtoDAsync(sum, view, BYTES, stream));
        CHECK(cuStreamSynchronize(stream));
        show_seen("consumed", sum);
        EXPECT(values[0] == 0);
    }
    CHECK(cuMemFree(seven));
    CHECK(cuStreamDestroy(stream));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    add = function_of(module, "vector_add");
    fill = function_of(module, "fill");
    CHECK(cuMemAlloc(&sum, BYTES));
    CHECK(cuMemsetD8(sum, 0, BYTES));
    CHECK(cuCtxSynchronize());

    for (uint32_t round = 0; round < 2; round++) {
        /* The second allocation often gets the same addresses. */
        uint32_t *pinned = NULL, *mapped = NULL;
        CUdeviceptr view = 0;
        CHECK(cuMemAllocHost((void **)&pinned, BYTES));
        CHECK(cuMemHostAlloc((void **)&mapped, BYTES,
                             CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
        memset(pinned, 0, BYTES);
        memset(mapped, 0, BYTES);
        /* The device can read pinned memory at its host address. */
        between_launches("pinned", pinned, (CUdeviceptr)(uintptr_t)pinned);
        CHECK(cuMemHostGetDevicePointer(&view, mapped, 0));
        between_launches("mapped", mapped, view);
        in_a_graph(mapped, view);
        by_copies(pinned, (CUdeviceptr)(uintptr_t)pinned);
        written_and_consumed(pinned, (CUdeviceptr)(uintptr_t)pinned, WAYS);
        CHECK(cuMemFreeHost(mapped));
        CHECK(cuMemFreeHost(pinned));
    }

    unsigned char *plain = mmap(NULL, REGISTERED, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(plain != MAP_FAILED);
    for (uint32_t round = 0; round < 2; round++) {
        CUdeviceptr view = 0;
        memset(plain, 0, REGISTERED);
        plain[0] = 7;
        CHECK(cuMemHostRegister(plain, REGISTERED,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
        CHECK(cuMemHostGetDevicePointer(&view, plain, 0));
        between_launches("registered", (uint32_t *)plain, view);
        CHECK(cuMemHostUnregister(plain));
    }
    EXPECT(munmap(plain, REGISTERED) == 0);

    int managed_access = 0;
    CHECK(cuDeviceGetAttribute(&managed_access, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                               device));
    if (managed_access) {
        CUdeviceptr managed = 0;
        CHECK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
        memset((void *)(uintptr_t)managed, 0, BYTES);
        between_launches("managed", (uint32_t *)(uintptr_t)managed, managed);
        in_a_graph((uint32_t *)(uintptr_t)managed, managed);
        by_described_copy((uint32_t *)(uintptr_t)managed, managed);
        written_and_consumed((uint32_t *)(uintptr_t)managed, managed, WAYS);
        CHECK(cuMemFree(managed));
    }

    uint32_t *longest = NULL;
    CHECK(cuMemAllocHost((void **)&longest, LONG));
    memset(longest, 0, BYTES);
    add_twice((CUdeviceptr)(uintptr_t)longest, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(longest));

    CHECK(cuMemFree(sum));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
