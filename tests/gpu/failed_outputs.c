/* What calls that fail leave in the variable that they should have set, and which handles texture and
 * surface objects get. Prints a table.
 *
 *   cc -std=gnu11 -O1 -Itests/programs/include -Itests/programs tests/gpu/failed_outputs.c \
 *       -o failed_outputs DRIVER/libcuda.so.1
 */
#include "program.h"

#define MARK 0x4444444444444444ull

static void report(const char *call, CUresult result, uint64_t output)
{
    const char *name = "?";
    cuGetErrorName(result, &name);
    printf("%-58s %-32s %s\n", call, name, output == MARK ? "as it was" : output ? "another value" : "zero");
}

/* OUTPUT is the variable that the call is to set. */
#define TRY(call) do { output.word = MARK; CUresult result = (call); report(#call, result, output.word); } while (0)

int main(void)
{
    begin();
    union {
        uint64_t word;
        CUdeviceptr memory;
        void *host;
        CUmodule module;
        CUfunction function;
        CUstream stream;
        CUevent event;
        CUarray array;
        CUgraph graph;
        CUgraphExec executable;
        CUgraphNode node;
        CUmemoryPool pool;
        CUmemGenericAllocationHandle allocation;
        CUtexObject texture;
        CUlibrary library;
        CUlinkState link;
        CUcontext context;
    } output;
    const size_t huge = (size_t)1 << 60;
    size_t pitch = 0, size = 0;
    CUmodule module = load_ptx(PTX_FILL);
    CUmemoryPool pool = NULL;
    CUgraph graph = NULL;
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    CHECK(cuGraphCreate(&graph, 0));
    CUmemAllocationProp no_type = {0};
    CUmemAllocationProp pinned = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemPoolProps no_pool = {0};
    CUDA_ARRAY_DESCRIPTOR no_array = {0};
    CUDA_RESOURCE_DESC no_resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUDA_TEXTURE_DESC sampling = {0};
    TRY(cuMemAlloc(&output.memory, huge));
    TRY(cuMemAlloc(&output.memory, 0));
    TRY(cuMemAllocPitch(&output.memory, &pitch, huge, 1, 4));
    TRY(cuMemAllocPitch(&output.memory, &pitch, 0, 1, 4));
    TRY(cuMemAllocPitch(&output.memory, &pitch, 64, 1, 3));
    TRY(cuMemAllocManaged(&output.memory, 0, CU_MEM_ATTACH_GLOBAL));
    TRY(cuMemAllocManaged(&output.memory, 64, 0));
    TRY(cuMemAllocHost(&output.host, 0));
    TRY(cuMemAllocHost(&output.host, huge));
    TRY(cuMemHostAlloc(&output.host, 0, 0));
    TRY(cuMemHostAlloc(&output.host, huge, 0));
    TRY(cuMemAllocAsync(&output.memory, huge, NULL));
    TRY(cuMemAllocAsync(&output.memory, 0, NULL));
    TRY(cuMemAllocFromPoolAsync(&output.memory, huge, pool, NULL));
    TRY(cuMemAddressReserve(&output.memory, 0, 0, 0, 0));
    TRY(cuMemAddressReserve(&output.memory, 12345, 0, 0, 0));
    TRY(cuMemCreate(&output.allocation, 2 << 20, &no_type, 0));
    TRY(cuMemCreate(&output.allocation, 12345, &pinned, 0));
    TRY(cuMemCreate(&output.allocation, huge, &pinned, 0));
    TRY(cuMemPoolCreate(&output.pool, &no_pool));
    TRY(cuArrayCreate(&output.array, &no_array));
    TRY(cuTexObjectCreate(&output.texture, &no_resource, &sampling, NULL));
    TRY(cuModuleLoadData(&output.module, "no image"));
    TRY(cuModuleLoad(&output.module, "/no/such/file"));
    TRY(cuModuleGetFunction(&output.function, module, "no_such_function"));
    TRY(cuModuleGetGlobal(&output.memory, &size, module, "no_such_variable"));
    TRY(cuLibraryLoadFromFile(&output.library, "/no/such/file", NULL, NULL, 0, NULL, NULL, 0));
    TRY(cuStreamCreate(&output.stream, 0x400));
    TRY(cuStreamCreateWithPriority(&output.stream, 0x400, 0));
    TRY(cuEventCreate(&output.event, 0x400));
    TRY(cuGraphCreate(&output.graph, 5));
    TRY(cuGraphInstantiateWithFlags(&output.executable, NULL, 0));
    TRY(cuGraphAddEmptyNode(&output.node, NULL, NULL, 0));
    TRY(cuCtxCreate(&output.context, NULL, 0x1000, device));

    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1,
                                     .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    CHECK(cuArray3DCreate(&array, &shape));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    CUtexObject textures[4];
    CUsurfObject surfaces[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cuTexObjectCreate(&textures[i], &resource, &sampling, NULL));
        CHECK(cuSurfObjectCreate(&surfaces[i], &resource));
        printf("texture %#llx surface %#llx\n", textures[i], surfaces[i]);
    }
    CHECK(cuTexObjectDestroy(textures[0]));
    for (int i = 2; i < 4; i++) {
        CHECK(cuTexObjectCreate(&textures[i], &resource, &sampling, NULL));
        printf("first destroyed, another: texture %#llx\n", textures[i]);
    }
    printf("destroyed again: %d\n", cuTexObjectDestroy(textures[1]) + 1000 * cuTexObjectDestroy(textures[1]));
    end();
    return success();
}
