/* Puts secrets wherever a trace can hold some. The first argument is a file of 16-byte secrets, in
 * the order below; those from TEXTS on are texts. The second one is a secret itself. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "images.h"
#include "nvtx.h"

enum { SECRET = 16, SHORT = 4096, LONG = 300000 };
enum {
    UPLOAD, LONG_UPLOAD, ASYNC, PINNED, MANAGED, READBACK, LATE_READBACK, PARAMETER, EXTRA,
    NODE_PARAMETER, NODE_COPY, ROWS, MAPPED,
    TEXTS, FILE_NAME = TEXTS, KERNEL, RANGE, MARK, THREAD, LINK_NAME, SECRETS,
};

static unsigned char secrets[SECRETS][SECRET];

/* A buffer with a secret in its middle. */
static unsigned char *holding(unsigned char *buffer, size_t size, int secret)
{
    for (size_t i = 0; i < size; i++)
        buffer[i] = (unsigned char)(i * 7);
    memcpy(buffer + size / 2, secrets[secret], SECRET);
    return buffer;
}

/* The secret as a text. */
static const char *text(int secret)
{
    static char texts[SECRETS][SECRET + 1];
    memcpy(texts[secret], secrets[secret], SECRET);
    return texts[secret];
}

/* Device memory gets a secret that no copy to it shows. */
static void set(CUdeviceptr memory, int secret)
{
    for (int i = 0; i < SECRET; i++)
        CHECK(cuMemsetD8(memory + i, secrets[secret][i], 1));
}

/* As PTX_BY_STRUCT takes it. */
struct arguments {
    CUdeviceptr out;
    unsigned char secret[SECRET];
    float e;
};

static struct arguments by_struct_of(CUdeviceptr out, int secret)
{
    struct arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.out = out;
    memcpy(arguments.secret, secrets[secret], SECRET);
    return arguments;
}

static void copies(CUdeviceptr memory, CUstream stream)
{
    static unsigned char buffer[LONG];
    unsigned char *pinned = NULL;
    CHECK(cuMemHostAlloc((void **)&pinned, SHORT, 0));
    CHECK(cuMemcpyHtoD(memory, holding(buffer, SHORT, UPLOAD), SHORT));
    for (int i = 0; i < 2; i++)
        CHECK(cuMemcpyHtoD(memory, holding(buffer, LONG, LONG_UPLOAD), LONG));
    CHECK(cuMemcpyHtoDAsync(memory, holding(pinned, SHORT, ASYNC), SHORT, stream));
    CHECK(cuStreamSynchronize(stream));
    set(memory, READBACK);
    CHECK(cuMemcpyDtoH(buffer, memory, SECRET));
    set(memory, LATE_READBACK);
    CHECK(cuMemcpyDtoHAsync(pinned, memory, SECRET, stream));
    CHECK(cuStreamSynchronize(stream));
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = holding(buffer, SHORT, ROWS), .srcPitch = 64,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = 64,
        .WidthInBytes = 64, .Height = SHORT / 64,
    };
    CHECK(cuMemcpy2D(&rows));
    CHECK(cuMemFreeHost(pinned));
}

/* The host changes memory that kernels read. */
static void shared_memory(CUfunction fill)
{
    unsigned char *pinned = NULL;
    CUdeviceptr view = 0, managed = 0;
    uint32_t start = 0, count = 1;
    CHECK(cuMemHostAlloc((void **)&pinned, SHORT, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&view, pinned, 0));
    CHECK(cuMemAllocManaged(&managed, SHORT, CU_MEM_ATTACH_GLOBAL));
    holding(pinned, SHORT, PINNED);
    holding((unsigned char *)(uintptr_t)managed, SHORT, MANAGED);
    void *first[] = {&view, &start, &count}, *second[] = {&managed, &start, &count};
    launch(fill, 1, 32, NULL, first);
    CHECK(cuCtxSynchronize());
    launch(fill, 1, 32, NULL, second);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(managed));
    CHECK(cuMemFreeHost(pinned));
}

static void kernels(CUdeviceptr memory)
{
    CUmodule module = load_ptx(PTX_BY_STRUCT);
    CUfunction by_struct = function_of(module, "by_struct");
    struct arguments arguments = by_struct_of(memory, PARAMETER);
    void *parameters[] = {&arguments};
    launch(by_struct, 1, 1, NULL, parameters);
    struct arguments other = by_struct_of(memory, EXTRA);
    size_t size = sizeof other;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &other, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(by_struct, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));

    static unsigned char buffer[SHORT];
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CUgraphNode in = NULL, work = NULL;
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = holding(buffer, SHORT, NODE_COPY),
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory,
        .WidthInBytes = SHORT, .Height = 1, .Depth = 1,
    };
    struct arguments of_node = by_struct_of(memory, NODE_PARAMETER);
    void *node_parameters[] = {&of_node};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = by_struct, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
        .blockDimY = 1, .blockDimZ = 1, .kernelParams = node_parameters,
    };
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &copy, context));
    CHECK(cuGraphAddKernelNode(&work, graph, &in, 1, &kernel));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuModuleUnload(module));
}

/* A file with a secret in its name, which is loaded, and whose bytes are copied while it is mapped;
 * a kernel with a secret name. */
static void files(CUdeviceptr memory)
{
    static char ptx[LONG];
    static unsigned char content[LONG];
    char path[64];
    int length = snprintf(ptx, sizeof ptx, PTX_HEAD ".visible .entry k%s()\n{\n ret;\n}\n", text(KERNEL));
    snprintf(path, sizeof path, "%s/file-%s", P_tmpdir, text(FILE_NAME));
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    EXPECT(file >= 0 && write(file, ptx, length) == length);
    CUmodule module = NULL;
    CHECK(cuModuleLoad(&module, path));
    char name[64];
    snprintf(name, sizeof name, "k%s", text(KERNEL));
    launch(function_of(module, name), 1, 1, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));

    EXPECT(pwrite(file, holding(content, LONG, MAPPED), LONG, 0) == LONG);
    void *mapped = mmap(NULL, LONG, PROT_READ, MAP_PRIVATE, file, 0);
    EXPECT(mapped != MAP_FAILED);
    CHECK(cuMemcpyHtoD(memory, mapped, LONG));
    CHECK(cuCtxSynchronize());
    EXPECT(munmap(mapped, LONG) == 0 && close(file) == 0 && unlink(path) == 0);
}

static void link_inputs(void)
{
    CUlinkState state = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLER,
                        sizeof PTX_LINK_CALLER, text(LINK_NAME), 0, NULL, NULL));
    CHECK(cuLinkDestroy(state));
}

int main(int count, char **words)
{
    EXPECT(count == 3);
    int file = open(words[1], O_RDONLY);
    EXPECT(file >= 0 && read(file, secrets, sizeof secrets) == sizeof secrets && close(file) == 0);
    EXPECT(prctl(PR_SET_NAME, text(THREAD)) == 0);
    nvtx_attach();
    begin();
    CUdeviceptr memory = 0;
    CUstream stream = NULL;
    CHECK(cuMemAlloc(&memory, LONG));
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    nvtx_push(text(RANGE));
    copies(memory, stream);
    nvtx_pop();
    nvtx_mark(text(MARK));
    CUmodule module = load_ptx(PTX_FILL);
    shared_memory(function_of(module, "fill"));
    CHECK(cuModuleUnload(module));
    kernels(memory);
    files(memory);
    link_inputs();
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
