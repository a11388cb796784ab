/* Two devices: a context on each, launches on each, copies from one to the other in every way, a
 * kernel that reads its peer's memory, a pool, mapped memory and memory of a graph on one device
 * that the other may use, managed memory. */
// null-driver: CUTAPE_NULL_DEVICES=3 CUTAPE_NULL_CAPABILITY=9.0,8.6,8.0
#include "program.h"

enum { COUNT = 4096, BYTES = COUNT * sizeof(uint32_t) };

/* The objects of one device. */
struct side {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUdeviceptr a, b, c;
};

static uint32_t values[COUNT];

static void set_up(struct side *side, int ordinal)
{
    int major = 0, minor = 0;
    CHECK(cuDeviceGet(&side->device, ordinal));
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, side->device));
    CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, side->device));
    printf("device %d: compute capability %d.%d\n", ordinal, major, minor);
    if (ordinal == 0) {
        CHECK(cuDevicePrimaryCtxRetain(&side->context, side->device));
        CHECK(cuCtxSetCurrent(side->context));
    } else {
        CHECK(cuCtxCreate(&side->context, NULL, 0, side->device));
    }
    CUdevice current = -1;
    CHECK(cuCtxGetDevice(&current));
    EXPECT(current == side->device);
    side->module = load_ptx(PTX_THREE);
    CHECK(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&side->a, BYTES));
    CHECK(cuMemAlloc(&side->b, BYTES));
    CHECK(cuMemAlloc(&side->c, BYTES));
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = i * (ordinal + 2);
    CHECK(cuMemcpyHtoD(side->a, values, BYTES));
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = 100 * (ordinal + 1) + i % 7;
    CHECK(cuMemcpyHtoD(side->b, values, BYTES));
    CHECK(cuMemsetD8(side->c, 0, BYTES));
    CHECK(cuCtxSynchronize()); /* the stream does not wait for the default stream */
    int of_memory = -1;
    CHECK(cuPointerGetAttribute(&of_memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, side->c));
    EXPECT(of_memory == side->device);
}

static void add(struct side *side, CUdeviceptr x, CUdeviceptr y)
{
    uint32_t count = COUNT;
    void *parameters[] = {&x, &y, &side->c, &count};
    CHECK(cuCtxSetCurrent(side->context));
    launch(function_of(side->module, "vector_add"), 8, 128, side->stream, parameters);
    CHECK(cuStreamSynchronize(side->stream));
}

static void show_memory(const char *label, CUdeviceptr memory)
{
    CHECK(cuMemcpyDtoH(values, memory, BYTES));
    show_u32(label, values, COUNT);
}

/* Memory of a pool of the second device, which the first may use. */
static void use_pool(struct side *first, struct side *second)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = second->device;
    CUmemoryPool pool = NULL;
    CHECK(cuMemPoolCreate(&pool, &properties));
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = first->device;
    CHECK(cuMemPoolSetAccess(pool, &access, 1));
    CUmemAccess_flags flags = 0;
    CHECK(cuMemPoolGetAccess(&flags, pool, &access.location));
    show("access to the pool", flags);
    CHECK(cuCtxSetCurrent(second->context));
    CUdeviceptr memory = 0;
    CHECK(cuMemAllocFromPoolAsync(&memory, BYTES, pool, second->stream));
    CHECK(cuMemcpyDtoDAsync(memory, second->b, BYTES, second->stream));
    CHECK(cuStreamSynchronize(second->stream));
    show_memory("from the pool", memory);
    CHECK(cuMemFreeAsync(memory, second->stream));
    CHECK(cuStreamSynchronize(second->stream));
    CHECK(cuMemPoolDestroy(pool));
}

/* Memory of the second device, mapped for both. */
static void use_mapping(struct side *first, struct side *second)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = second->device;
    size_t size = 0;
    CHECK(cuMemGetAllocationGranularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cuMemCreate(&handle, size, &properties, 0));
    CHECK(cuMemMap(address, size, 0, handle, 0));
    CUmemAccessDesc access[2] = {{.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    access[0].location.type = access[1].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[0].location.id = first->device;
    access[1].location.id = second->device;
    CHECK(cuMemSetAccess(address, size, access, 2));
    CUmemAllocationProp told = {0};
    CHECK(cuMemGetAllocationPropertiesFromHandle(&told, handle));
    EXPECT(told.location.id == second->device);
    CHECK(cuCtxSetCurrent(first->context));
    CHECK(cuMemcpyDtoD(address, first->a, BYTES));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(second->context));
    show_memory("mapped", address);
    CHECK(cuMemUnmap(address, size));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(address, size));
}

/* Managed memory whose preferred location is the second device. */
static void use_managed(struct side *second)
{
    CUdeviceptr memory = 0;
    CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = second->device};
    CHECK(cuCtxSetCurrent(second->context));
    CHECK(cuMemAllocManaged(&memory, BYTES, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAdvise(memory, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, there));
    CHECK(cuMemPrefetchAsync(memory, BYTES, there, 0, second->stream));
    CHECK(cuMemsetD8Async(memory, 5, BYTES, second->stream));
    CHECK(cuStreamSynchronize(second->stream));
    int preferred = -1, prefetched = -1;
    CHECK(cuMemRangeGetAttribute(&preferred, sizeof preferred,
                                 CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, BYTES));
    EXPECT(preferred == second->device);
    void *answers[] = {&preferred, &prefetched};
    size_t sizes[] = {sizeof preferred, sizeof prefetched};
    CUmem_range_attribute questions[] = {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                         CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION};
    CHECK(cuMemRangeGetAttributes(answers, sizes, questions, 2, memory, BYTES));
    EXPECT(preferred == second->device && prefetched == second->device);
    show_memory("managed", memory);
    CHECK(cuMemFree(memory));
}

/* Memory of a graph, on the second device and accessible to the first. */
static void use_graph(struct side *first, struct side *second)
{
    CUgraph graph = NULL;
    CUgraphNode allocate = NULL, set = NULL, give_back = NULL;
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = first->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = second->device}},
        .accessDescs = &access, .accessDescCount = 1, .bytesize = BYTES,
    };
    CHECK(cuCtxSetCurrent(second->context));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    CUDA_MEMSET_NODE_PARAMS values_set = {.dst = wanted.dptr, .value = 7, .elementSize = 4,
                                          .width = COUNT, .height = 1};
    CHECK(cuGraphAddMemsetNode(&set, graph, &allocate, 1, &values_set, second->context));
    CHECK(cuGraphAddMemFreeNode(&give_back, graph, &set, 1, wanted.dptr));
    CUDA_MEM_ALLOC_NODE_PARAMS asked;
    CHECK(cuGraphMemAllocNodeGetParams(allocate, &asked));
    EXPECT(asked.poolProps.location.id == second->device && asked.bytesize == BYTES);
    CUgraphExec executable = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, second->stream));
    CHECK(cuStreamSynchronize(second->stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuDeviceGraphMemTrim(second->device));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    int count = 0;
    CHECK(cuDeviceGetCount(&count));
    if (count < 2) {
        puts("skipped: one device");
        return success();
    }
    struct side first = {0}, second = {0};
    set_up(&first, 0);
    set_up(&second, 1);
    add(&first, first.a, first.b);
    show_memory("first", first.c);
    add(&second, second.a, second.b);
    show_memory("second", second.c);

    int there = 0, back = 0, itself = 0;
    CHECK(cuDeviceCanAccessPeer(&there, first.device, second.device));
    CHECK(cuDeviceCanAccessPeer(&back, second.device, first.device));
    CHECK(cuDeviceCanAccessPeer(&itself, first.device, first.device));
    printf("peers: %d %d %d\n", there, back, itself);
    if (there && back) {
        CHECK(cuCtxSetCurrent(first.context));
        CHECK(cuCtxEnablePeerAccess(second.context, 0));
        CHECK(cuCtxSetCurrent(second.context));
        CHECK(cuCtxEnablePeerAccess(first.context, 0));
        add(&first, first.a, second.b); /* reads its peer's memory */
        show_memory("across", first.c);
    }

    CHECK(cuMemcpyPeer(second.c, second.context, first.b, first.context, BYTES));
    CHECK(cuCtxSetCurrent(second.context));
    CHECK(cuCtxSynchronize());
    show_memory("copied over", second.c);
    CHECK(cuMemcpyPeerAsync(first.c, first.context, second.a, second.context, BYTES,
                            second.stream));
    CHECK(cuStreamSynchronize(second.stream));
    CHECK(cuCtxSetCurrent(first.context));
    show_memory("copied back", first.c);
    CHECK(cuMemcpyDtoD(first.c, second.b, BYTES));
    CHECK(cuCtxSynchronize());
    show_memory("copied by address", first.c);
    if (there && back) {
        use_pool(&first, &second);
        use_mapping(&first, &second);
        use_graph(&first, &second);
        CHECK(cuCtxSetCurrent(first.context));
        CHECK(cuCtxDisablePeerAccess(second.context));
        CHECK(cuCtxSetCurrent(second.context));
        CHECK(cuCtxDisablePeerAccess(first.context));
    }

    use_managed(&second);

    for (int i = 0; i < 2; i++) {
        struct side *side = i ? &second : &first;
        CHECK(cuCtxSetCurrent(side->context));
        CHECK(cuMemFree(side->a));
        CHECK(cuMemFree(side->b));
        CHECK(cuMemFree(side->c));
        CHECK(cuStreamDestroy(side->stream));
        CHECK(cuModuleUnload(side->module));
    }
    CHECK(cuCtxDestroy(second.context));
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuDevicePrimaryCtxRelease(first.device));
    return success();
}
