/* Threads that create, use and destroy objects of every kind, for a number of seconds:
 *   every_object SECONDS [THREADS] [ROUNDS] [STEPS]
 * Each thread ends and begins again after ROUNDS rounds (0: never). A round has STEPS (20) steps of
 * a copy, a launch and an event. Prints how many rounds and how many calls of steps there were, on
 * stderr. */
#include "images.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { COUNT = 256, BYTES = COUNT * 4 };

static atomic_int is_done;
static atomic_ullong all_rounds;
static unsigned rounds_of_a_thread;
static unsigned steps_of_a_round = 20;
static unsigned char *cubin;

static void streams_and_events(CUfunction fill, uint32_t seed)
{
    CUstream stream;
    CUevent event, timed;
    CUdeviceptr memory;
    uint32_t count = COUNT, in[COUNT], out[COUNT];
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&timed, 0));
    CHECK(cuMemAlloc(&memory, BYTES));
    for (unsigned i = 0; i < COUNT; i++)
        in[i] = seed + i;
    for (unsigned step = 0; step < steps_of_a_round; step++) {
        CHECK(cuMemcpyHtoDAsync(memory, in, BYTES, stream));
        void *parameters[] = {&memory, &seed, &count};
        launch(fill, 2, 128, stream, parameters);
        CHECK(cuEventRecord(timed, stream));
        CHECK(cuEventQuery(timed) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : cuEventSynchronize(timed));
    }
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamWaitEvent(stream, event, 0));
    CHECK(cuMemcpyDtoHAsync(out, memory, BYTES, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT_KERNEL(out[1] == seed + 1);
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(timed));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
}

static void modules_and_libraries(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr counter;
    size_t size;
    CUmodule module = load_ptx(PTX_FILL);
    function_of(module, "fill");
    CHECK(cuLibraryLoadData(&library, PTX_GLOBALS, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "use_globals"));
    CHECK(cuLibraryGetGlobal(&counter, &size, library, "counter"));
    CHECK(cuMemsetD8(counter, 1, size));
    CHECK(cuLibraryUnload(library));
    CHECK(cuModuleUnload(module));
    CHECK(cuModuleLoadData(&module, cubin));
    CHECK(cuModuleUnload(module));
}

static void links(void)
{
    CUlinkState state;
    CUmodule module;
    void *linked;
    size_t size;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLER,
                        sizeof PTX_LINK_CALLER, "caller", 0, NULL, NULL));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLEE,
                        sizeof PTX_LINK_CALLEE, "callee", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &linked, &size));
    CHECK(cuModuleLoadData(&module, linked));
    CHECK(cuLinkDestroy(state));
    CHECK(cuModuleUnload(module));
}

static void graphs(CUfunction fill)
{
    CUgraph graph, copy;
    CUgraphExec executable;
    CUgraphNode clear, work;
    CUstream stream;
    CUdeviceptr memory;
    uint32_t start = 1, count = COUNT;
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *parameters[] = {&memory, &start, &count};
    CUDA_MEMSET_NODE_PARAMS memset_node = {.dst = memory, .elementSize = 4, .width = COUNT,
                                           .height = 1};
    CUDA_KERNEL_NODE_PARAMS kernel_node = {
        .func = fill, .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
        .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters,
    };
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&clear, graph, NULL, 0, &memset_node, context));
    CHECK(cuGraphAddKernelNode(&work, graph, &clear, 1, &kernel_node));
    CHECK(cuGraphClone(&copy, graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 5; i++)
        CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(copy));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(fill, 2, 128, stream, parameters);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(memory));
}

static void memory_of_all_kinds(void)
{
    CUdeviceptr memory, managed, of_pool, pitched;
    CUstream stream;
    CUmemoryPool pool;
    size_t pitch;
    void *host, *heap = NULL;
    CUmemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CHECK(cuStreamCreate(&stream, 0));
    CHECK(cuMemAllocHost(&host, BYTES));
    CHECK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAllocPitch(&pitched, &pitch, 64, 4, 4));
    CHECK(cuMemPoolCreate(&pool, &properties));
    CHECK(cuMemAllocAsync(&memory, BYTES, stream));
    CHECK(cuMemAllocFromPoolAsync(&of_pool, BYTES, pool, stream));
    EXPECT(posix_memalign(&heap, 4096, 4096) == 0);
    CHECK(cuMemHostRegister(heap, 4096, 0));
    memset(host, 3, BYTES);
    CHECK(cuMemcpyHtoDAsync(memory, host, BYTES, stream));
    CHECK(cuMemcpyDtoDAsync(of_pool, memory, BYTES, stream));
    CHECK(cuMemcpyDtoHAsync(heap, of_pool, BYTES, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(*(char *)heap == 3);
    CHECK(cuMemHostUnregister(heap));
    free(heap);
    CHECK(cuMemFreeAsync(of_pool, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuMemFree(pitched));
    CHECK(cuMemFree(managed));
    CHECK(cuMemFreeHost(host));

    CUmemAllocationProp of_page;
    memset(&of_page, 0, sizeof of_page);
    of_page.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of_page.location = properties.location;
    size_t size = 0;
    CUdeviceptr range;
    CUmemGenericAllocationHandle page;
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemGetAllocationGranularity(&size, &of_page, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&range, size, 0, 0, 0));
    CHECK(cuMemCreate(&page, size, &of_page, 0));
    CHECK(cuMemMap(range, size, 0, page, 0));
    CHECK(cuMemSetAccess(range, size, &access, 1));
    CHECK(cuMemsetD8Async(range, 5, 64, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemUnmap(range, size));
    CHECK(cuMemRelease(page));
    CHECK(cuMemAddressFree(range, size));
    CHECK(cuStreamDestroy(stream));
}

static void arrays_and_textures(void)
{
    CUarray array;
    CUmipmappedArray levels;
    CUtexObject texture;
    CUsurfObject surface;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 64, .Height = 8, .NumChannels = 1,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                     .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    CHECK(cuArray3DCreate(&array, &shape));
    CHECK(cuMipmappedArrayCreate(&levels, &shape, 2));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    CUDA_TEXTURE_DESC sampler;
    memset(&sampler, 0, sizeof sampler);
    sampler.flags = CU_TRSF_READ_AS_INTEGER;
    CHECK(cuTexObjectCreate(&texture, &resource, &sampler, NULL));
    CHECK(cuSurfObjectCreate(&surface, &resource));
    CHECK(cuSurfObjectDestroy(surface));
    CHECK(cuTexObjectDestroy(texture));
    CHECK(cuMipmappedArrayDestroy(levels));
    CHECK(cuArrayDestroy(array));
}

static void *work(void *fill)
{
    CHECK(cuCtxSetCurrent(context));
    for (unsigned round = 0; !is_done; round++) {
        if (rounds_of_a_thread != 0 && round == rounds_of_a_thread)
            break;
        streams_and_events((CUfunction)fill, round);
        memory_of_all_kinds();
        graphs((CUfunction)fill);
        if (round % 4 == 0) {
            modules_and_libraries();
            arrays_and_textures();
        }
        if (round % 16 == 0)
            links();
        all_rounds++;
    }
    return NULL;
}

int main(int count, char **arguments)
{
    unsigned seconds = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    unsigned threads = count > 2 ? (unsigned)atoi(arguments[2]) : 8;
    rounds_of_a_thread = count > 3 ? (unsigned)atoi(arguments[3]) : 0;
    steps_of_a_round = count > 4 ? (unsigned)atoi(arguments[4]) : steps_of_a_round;
    begin();
    size_t size = 0;
    cubin = link_cubin(PTX_LINK_CALLER, PTX_LINK_CALLEE, &size);
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    pthread_t *all = calloc(threads, sizeof *all);
    for (unsigned i = 0; i < threads; i++)
        EXPECT(pthread_create(&all[i], NULL, work, fill) == 0);
    time_t end_time = time(NULL) + seconds;
    /* Threads that have ended are followed by others. */
    for (unsigned i = 0; time(NULL) < end_time; i = (i + 1) % threads) {
        if (rounds_of_a_thread == 0) {
            usleep(100000);
            continue;
        }
        EXPECT(pthread_join(all[i], NULL) == 0);
        EXPECT(pthread_create(&all[i], NULL, work, fill) == 0);
    }
    is_done = 1;
    for (unsigned i = 0; i < threads; i++)
        EXPECT(pthread_join(all[i], NULL) == 0);
    free(all);
    unsigned long long rounds = all_rounds;
    fprintf(stderr, "%llu rounds, %llu calls of steps\n", rounds, rounds * steps_of_a_round * 4);
    CHECK(cuModuleUnload(module));
    free(cubin);
    end();
    return success();
}
