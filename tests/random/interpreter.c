/* Runs random programs: interpreter MIX_PTX PROGRAM... Each line of a program is an operation: its
 * thread, its name, and numbers (src/text.rs writes them). Prints for each program the digests of
 * what its reads found, in the order of the operations. */
#include <pthread.h>
#include <sched.h>

#include "program.h"

#define MOST 64
#define MOST_OPERATIONS 4096
#define MOST_NUMBERS 64

enum memory { DEVICE, PINNED, MANAGED, PAGEABLE, REGISTERED, POOL };
enum copy_form { OF_KINDS, UNIFIED, ROWS, BATCH };
enum stream_kind { BLOCKING, NON_BLOCKING, LEGACY, PER_THREAD };

struct operation {
    int line, thread, count;
    char name[24];
    long long number[MOST_NUMBERS];
    int has_digest;
    uint64_t digest;
};

struct host_write {
    unsigned char *to;
    size_t size;
    uint32_t seed;
};

static char *mix_text;
static struct operation *operations;
static int operation_count;

static CUcontext contexts[MOST];
static int context_device[MOST], context_is_created[MOST];
static CUmodule modules[MOST];
static CUfunction mixes[MOST];
static CUstream streams[MOST];
static int stream_context[MOST];
static CUevent events[MOST];
static int event_context[MOST];
static CUdeviceptr buffers[MOST];
static size_t buffer_size[MOST];
static int buffer_kind[MOST], buffer_context[MOST];
static CUgraph graphs[MOST];
static CUgraphExec execs[MOST];
static int posted[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static __thread int current = -1;

static void use(int context_index)
{
    if (current != context_index)
        CHECK(cuCtxSetCurrent(contexts[context_index]));
    current = context_index;
}

/* The byte at a position of the pattern of a seed. */
static unsigned char pattern(uint32_t seed, uint32_t at)
{
    return (unsigned char)((seed * 0x9e3779b1u + at * 0x85ebca6bu) >> 13);
}

static void fill(unsigned char *to, size_t size, uint32_t seed)
{
    for (size_t at = 0; at < size; at++)
        to[at] = pattern(seed, (uint32_t)at);
}

static void write_on_host(void *argument)
{
    struct host_write *write = argument;
    fill(write->to, write->size, write->seed);
    free(write);
}

static void post(void *flag)
{
    pthread_mutex_lock(&lock);
    *(int *)flag = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static uint64_t digest(const unsigned char *bytes, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t at = 0; at < size; at++)
        sum = (sum ^ bytes[at]) * 0x100000001b3u;
    return sum;
}

static int is_host(int kind)
{
    return kind == PINNED || kind == PAGEABLE || kind == REGISTERED;
}

static void *host_address(int buffer, long long offset)
{
    return (void *)(uintptr_t)(buffers[buffer] + offset);
}

static void make_context(const long long *n)
{
    int index = (int)n[0];
    CUdevice of;
    CHECK(cuDeviceGet(&of, (int)n[1]));
    context_device[index] = of;
    context_is_created[index] = (int)n[2];
    if (n[2])
        CHECK(cuCtxCreate(&contexts[index], NULL, 0, of));
    else
        CHECK(cuDevicePrimaryCtxRetain(&contexts[index], of));
    CHECK(cuCtxSetCurrent(contexts[index]));
    current = index;
    CHECK(cuModuleLoadData(&modules[index], mix_text));
    CHECK(cuModuleGetFunction(&mixes[index], modules[index], "cutape_mix"));
}

static void end_context(int index)
{
    use(index);
    CHECK(cuModuleUnload(modules[index]));
    if (context_is_created[index]) {
        CHECK(cuCtxDestroy(contexts[index]));
    } else {
        CHECK(cuCtxSetCurrent(NULL));
        CHECK(cuDevicePrimaryCtxRelease(context_device[index]));
    }
    current = -1;
}

static void make_stream(const long long *n)
{
    int index = (int)n[0];
    stream_context[index] = (int)n[1];
    use((int)n[1]);
    if (n[2] == LEGACY)
        streams[index] = CU_STREAM_LEGACY;
    else if (n[2] == PER_THREAD)
        streams[index] = CU_STREAM_PER_THREAD;
    else
        CHECK(cuStreamCreate(&streams[index], n[2] == NON_BLOCKING ? CU_STREAM_NON_BLOCKING : 0));
}

static void allocate(const long long *n)
{
    int index = (int)n[0];
    size_t size = (size_t)n[3];
    buffer_context[index] = (int)n[1];
    buffer_kind[index] = (int)n[2];
    buffer_size[index] = size;
    use((int)n[1]);
    void *host = NULL;
    switch (n[2]) {
    case DEVICE:
        CHECK(cuMemAlloc(&buffers[index], size));
        return;
    case MANAGED:
        CHECK(cuMemAllocManaged(&buffers[index], size, CU_MEM_ATTACH_GLOBAL));
        return;
    case POOL:
        CHECK(cuMemAllocAsync(&buffers[index], size, streams[n[4]]));
        return;
    case PINNED:
        CHECK(cuMemHostAlloc(&host, size, CU_MEMHOSTALLOC_PORTABLE));
        break;
    case PAGEABLE:
        host = malloc(size);
        break;
    case REGISTERED:
        EXPECT(posix_memalign(&host, 4096, (size + 4095) / 4096 * 4096) == 0);
        CHECK(cuMemHostRegister(host, (size + 4095) / 4096 * 4096, CU_MEMHOSTREGISTER_PORTABLE));
        break;
    }
    buffers[index] = (CUdeviceptr)(uintptr_t)host;
}

static void release(const long long *n)
{
    int index = (int)n[0];
    use(buffer_context[index]);
    switch (buffer_kind[index]) {
    case DEVICE:
    case MANAGED:
        CHECK(cuMemFree(buffers[index]));
        break;
    case POOL:
        CHECK(cuMemFreeAsync(buffers[index], streams[n[1]]));
        break;
    case PINNED:
        CHECK(cuMemFreeHost(host_address(index, 0)));
        break;
    case REGISTERED:
        CHECK(cuMemHostUnregister(host_address(index, 0)));
        free(host_address(index, 0));
        break;
    case PAGEABLE:
        free(host_address(index, 0));
        break;
    }
}

static void read_buffer(struct operation *operation)
{
    const long long *n = operation->number;
    size_t size = (size_t)n[2];
    int kind = buffer_kind[n[0]];
    operation->has_digest = 1;
    if (is_host(kind) || kind == MANAGED) {
        operation->digest = digest(host_address((int)n[0], n[1]), size);
        return;
    }
    use(buffer_context[n[0]]);
    unsigned char *bytes = malloc(size);
    CHECK(cuMemcpyDtoH(bytes, buffers[n[0]] + n[1], size));
    operation->digest = digest(bytes, size);
    free(bytes);
}

/* buffer, offset, count, width, value, stream or -1, context */
static void set_memory(const long long *n, CUstream stream, int is_async)
{
    CUdeviceptr to = buffers[n[0]] + n[1];
    size_t count = (size_t)n[2];
    unsigned value = (unsigned)n[4];
    if (n[3] == 1)
        CHECK(is_async ? cuMemsetD8Async(to, (unsigned char)value, count, stream)
                       : cuMemsetD8(to, (unsigned char)value, count));
    else if (n[3] == 2)
        CHECK(is_async ? cuMemsetD16Async(to, (unsigned short)value, count, stream)
                       : cuMemsetD16(to, (unsigned short)value, count));
    else
        CHECK(is_async ? cuMemsetD32Async(to, value, count, stream)
                       : cuMemsetD32(to, value, count));
}

/* Four rows. */
static void copy_rows(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CUDA_MEMCPY2D copy = {
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = to, .dstPitch = size / 4,
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = from, .srcPitch = size / 4,
        .WidthInBytes = size / 4, .Height = 4,
    };
    CHECK(cuMemcpy2DAsync(&copy, stream));
}

/* Two halves. */
static void copy_batch(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CUdeviceptr into[] = {to, to + size / 2}, out_of[] = {from, from + size / 2};
    size_t sizes[] = {size / 2, size - size / 2}, first = 0;
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CHECK(cuMemcpyBatchAsync(into, out_of, sizes, 2, &how, &first, 1, stream));
}

/* to, offset, from, offset, length, stream or -1, context, form (src/program.rs) */
static void copy_memory(const long long *n, CUstream stream, int is_async)
{
    CUdeviceptr to = buffers[n[0]] + n[1], from = buffers[n[2]] + n[3];
    size_t size = (size_t)n[4];
    int to_host = is_host(buffer_kind[n[0]]), from_host = is_host(buffer_kind[n[2]]);
    if (n[7] == ROWS)
        copy_rows(to, from, size, stream);
    else if (n[7] == BATCH)
        copy_batch(to, from, size, stream);
    else if (n[7] == UNIFIED || (to_host && from_host))
        CHECK(is_async ? cuMemcpyAsync(to, from, size, stream) : cuMemcpy(to, from, size));
    else if (to_host)
        CHECK(is_async ? cuMemcpyDtoHAsync((void *)(uintptr_t)to, from, size, stream)
                       : cuMemcpyDtoH((void *)(uintptr_t)to, from, size));
    else if (from_host)
        CHECK(is_async ? cuMemcpyHtoDAsync(to, (void *)(uintptr_t)from, size, stream)
                       : cuMemcpyHtoD(to, (void *)(uintptr_t)from, size));
    else
        CHECK(is_async ? cuMemcpyDtoDAsync(to, from, size, stream) : cuMemcpyDtoD(to, from, size));
}

/* out, offset, in, offset, words, seed */
static void mix(const long long *n, int context_index, CUstream stream)
{
    CUdeviceptr out = buffers[n[0]] + n[1], in = buffers[n[2]] + n[3];
    unsigned count = (unsigned)n[4], seed = (unsigned)n[5];
    void *parameters[] = {&out, &in, &count, &seed};
    launch(mixes[context_index], (count + 127) / 128, 128, stream, parameters);
}

/* Enqueues the work of a node of a graph: `numbers` begin with its kind. */
static void enqueue_node(const long long *n, int context_index, CUstream stream)
{
    if (n[0] == 0)
        set_memory(n + 1, stream, 1);
    else if (n[0] == 1)
        copy_memory(n + 1, stream, 1);
    else
        mix(n + 1, context_index, stream);
}

/* The node that an operation `node` describes, in a graph that is built. */
static CUgraphNode add_node(CUgraph graph, const long long *n, int context_index,
                            const CUgraphNode *after, size_t count)
{
    CUgraphNode node = NULL;
    if (n[0] == 0) {
        CUDA_MEMSET_NODE_PARAMS memset = {
            .dst = buffers[n[1]] + n[2], .value = (unsigned)n[5], .elementSize = (unsigned)n[4],
            .width = (size_t)n[3], .height = 1,
        };
        CHECK(cuGraphAddMemsetNode(&node, graph, after, count, &memset, contexts[context_index]));
    } else if (n[0] == 1) {
        CUDA_MEMCPY3D copy = {
            .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = buffers[n[1]] + n[2],
            .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = buffers[n[3]] + n[4],
            .WidthInBytes = (size_t)n[5], .Height = 1, .Depth = 1,
        };
        CHECK(cuGraphAddMemcpyNode(&node, graph, after, count, &copy, contexts[context_index]));
    } else {
        CUdeviceptr out = buffers[n[1]] + n[2], in = buffers[n[3]] + n[4];
        unsigned words = (unsigned)n[5], seed = (unsigned)n[6];
        void *parameters[] = {&out, &in, &words, &seed};
        CUDA_KERNEL_NODE_PARAMS kernel = {
            .func = mixes[context_index], .gridDimX = (words + 127) / 128, .gridDimY = 1,
            .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1,
            .kernelParams = parameters,
        };
        CHECK(cuGraphAddKernelNode(&node, graph, after, count, &kernel));
    }
    return node;
}

/* graph, context, whether captured, nodes; each node is an operation `node` that follows: count of
 * the nodes before it, these, and its work. */
static void make_graph(const struct operation *operation)
{
    const long long *n = operation->number;
    int index = (int)n[0], context_index = (int)n[1], count = (int)n[3];
    const struct operation *nodes = operation + 1;
    use(context_index);
    if (!n[2]) {
        CUgraphNode made[MOST], after[MOST];
        CHECK(cuGraphCreate(&graphs[index], 0));
        for (int at = 0; at < count; at++) {
            const long long *m = nodes[at].number;
            for (int k = 0; k < m[0]; k++)
                after[k] = made[m[1 + k]];
            made[at] = add_node(graphs[index], m + 1 + m[0], context_index, after, (size_t)m[0]);
        }
    } else {
        CUstream origin, own[MOST];
        CUevent first, done[MOST];
        CHECK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
        CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(cuEventRecord(first, origin));
        for (int at = 0; at < count; at++) {
            const long long *m = nodes[at].number;
            CHECK(cuStreamCreate(&own[at], CU_STREAM_NON_BLOCKING));
            CHECK(cuEventCreate(&done[at], CU_EVENT_DISABLE_TIMING));
            CHECK(cuStreamWaitEvent(own[at], first, 0));
            for (int k = 0; k < m[0]; k++)
                CHECK(cuStreamWaitEvent(own[at], done[m[1 + k]], 0));
            enqueue_node(m + 1 + m[0], context_index, own[at]);
            CHECK(cuEventRecord(done[at], own[at]));
        }
        for (int at = 0; at < count; at++)
            CHECK(cuStreamWaitEvent(origin, done[at], 0));
        CHECK(cuStreamEndCapture(origin, &graphs[index]));
        for (int at = 0; at < count; at++) {
            CHECK(cuEventDestroy(done[at]));
            CHECK(cuStreamDestroy(own[at]));
        }
        CHECK(cuEventDestroy(first));
        CHECK(cuStreamDestroy(origin));
    }
    CHECK(cuGraphInstantiateWithFlags(&execs[index], graphs[index], 0));
}

static void wait_until(CUresult (*query)(void *), void *handle)
{
    for (;;) {
        CUresult result = query(handle);
        if (result == CUDA_SUCCESS)
            return;
        CHECK_RESULT(CUDA_ERROR_NOT_READY, result);
        sched_yield();
    }
}

static CUresult query_stream(void *stream)
{
    return cuStreamQuery(stream);
}

static CUresult query_event(void *event)
{
    return cuEventQuery(event);
}

static void run_operation(struct operation *operation)
{
    const long long *n = operation->number;
    const char *name = operation->name;
    if (!strcmp(name, "context")) {
        make_context(n);
    } else if (!strcmp(name, "end_context")) {
        end_context((int)n[0]);
    } else if (!strcmp(name, "stream")) {
        make_stream(n);
    } else if (!strcmp(name, "end_stream")) {
        use(stream_context[n[0]]);
        CHECK(cuStreamDestroy(streams[n[0]]));
    } else if (!strcmp(name, "event")) {
        use((int)n[1]);
        event_context[n[0]] = (int)n[1];
        CHECK(cuEventCreate(&events[n[0]], (unsigned)n[2]));
    } else if (!strcmp(name, "end_event")) {
        use(event_context[n[0]]);
        CHECK(cuEventDestroy(events[n[0]]));
    } else if (!strcmp(name, "allocate")) {
        allocate(n);
    } else if (!strcmp(name, "free")) {
        release(n);
    } else if (!strcmp(name, "fill")) {
        fill(host_address((int)n[0], n[1]), (size_t)n[2], (uint32_t)n[3]);
    } else if (!strcmp(name, "read")) {
        read_buffer(operation);
    } else if (!strcmp(name, "memset")) {
        use(n[5] < 0 ? (int)n[6] : stream_context[n[5]]);
        set_memory(n, n[5] < 0 ? NULL : streams[n[5]], n[5] >= 0);
    } else if (!strcmp(name, "copy")) {
        use(n[5] < 0 ? (int)n[6] : stream_context[n[5]]);
        copy_memory(n, n[5] < 0 ? NULL : streams[n[5]], n[5] >= 0);
    } else if (!strcmp(name, "mix")) {
        use(stream_context[n[6]]);
        mix(n, stream_context[n[6]], streams[n[6]]);
    } else if (!strcmp(name, "host_fill")) {
        struct host_write *write = malloc(sizeof *write);
        *write = (struct host_write){host_address((int)n[1], n[2]), (size_t)n[3], (uint32_t)n[4]};
        use(stream_context[n[0]]);
        CHECK(cuLaunchHostFunc(streams[n[0]], write_on_host, write));
    } else if (!strcmp(name, "write_value")) {
        use(stream_context[n[0]]);
        if (n[4]) {
            CUstreamBatchMemOpParams write = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
            write.writeValue.address = buffers[n[1]] + n[2];
            write.writeValue.value = (cuuint32_t)n[3];
            CHECK(cuStreamBatchMemOp(streams[n[0]], 1, &write, 0));
        } else {
            CHECK(cuStreamWriteValue32(streams[n[0]], buffers[n[1]] + n[2], (cuuint32_t)n[3], 0));
        }
    } else if (!strcmp(name, "poll")) {
        const volatile uint32_t *at = host_address((int)n[0], n[1]);
        while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != (uint32_t)n[2])
            sched_yield();
    } else if (!strcmp(name, "record")) {
        use(stream_context[n[1]]);
        CHECK(cuEventRecord(events[n[0]], streams[n[1]]));
    } else if (!strcmp(name, "wait")) {
        use(stream_context[n[0]]);
        CHECK(cuStreamWaitEvent(streams[n[0]], events[n[1]], 0));
    } else if (!strcmp(name, "sync_stream")) {
        use(stream_context[n[0]]);
        CHECK(cuStreamSynchronize(streams[n[0]]));
    } else if (!strcmp(name, "sync_event")) {
        use(event_context[n[0]]);
        CHECK(cuEventSynchronize(events[n[0]]));
    } else if (!strcmp(name, "sync_context")) {
        use((int)n[0]);
        CHECK(cuCtxSynchronize());
    } else if (!strcmp(name, "query_stream")) {
        use(stream_context[n[0]]);
        wait_until(query_stream, streams[n[0]]);
    } else if (!strcmp(name, "query_event")) {
        use(event_context[n[0]]);
        wait_until(query_event, events[n[0]]);
    } else if (!strcmp(name, "graph")) {
        make_graph(operation);
    } else if (!strcmp(name, "launch")) {
        use(stream_context[n[1]]);
        CHECK(cuGraphLaunch(execs[n[0]], streams[n[1]]));
    } else if (!strcmp(name, "end_graph")) {
        CHECK(cuGraphExecDestroy(execs[n[0]]));
        CHECK(cuGraphDestroy(graphs[n[0]]));
    } else if (!strcmp(name, "post")) {
        post(&posted[n[0]]);
    } else if (!strcmp(name, "signal")) {
        use(stream_context[n[0]]);
        CHECK(cuLaunchHostFunc(streams[n[0]], post, &posted[n[1]]));
    } else if (!strcmp(name, "await")) {
        pthread_mutex_lock(&lock);
        while (!posted[n[0]])
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
    } else if (strcmp(name, "node")) {
        fprintf(stderr, "line %d: unknown operation %s\n", operation->line, name);
        exit(2);
    }
}

static void *run_thread(void *argument)
{
    int thread = (int)(intptr_t)argument;
    for (int at = 0; at < operation_count; at++)
        if (operations[at].thread == thread)
            run_operation(&operations[at]);
    return NULL;
}

static void read_program(const char *path)
{
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    char line[1024];
    operation_count = 0;
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        struct operation *operation = &operations[operation_count++];
        int used = 0;
        *operation = (struct operation){.line = number};
        EXPECT(operation_count < MOST_OPERATIONS);
        EXPECT(sscanf(line, "%d %23s%n", &operation->thread, operation->name, &used) == 2);
        for (char *at = line + used, *next;; at = next) {
            long long value = strtoll(at, &next, 10);
            if (next == at)
                break;
            EXPECT(operation->count < MOST_NUMBERS);
            operation->number[operation->count++] = value;
        }
    }
    fclose(file);
}

static void run_program(const char *path)
{
    read_program(path);
    memset(posted, 0, sizeof posted);
    current = -1;
    int threads = 1;
    for (int at = 0; at < operation_count; at++)
        if (operations[at].thread >= threads)
            threads = operations[at].thread + 1;
    pthread_t others[8];
    EXPECT(threads <= 8);
    for (int thread = 1; thread < threads; thread++)
        EXPECT(pthread_create(&others[thread], NULL, run_thread, (void *)(intptr_t)thread) == 0);
    run_thread(NULL);
    for (int thread = 1; thread < threads; thread++)
        EXPECT(pthread_join(others[thread], NULL) == 0);
    printf("program\n");
    for (int at = 0; at < operation_count; at++)
        if (operations[at].has_digest)
            printf("%d %016llx\n", operations[at].line, (unsigned long long)operations[at].digest);
}

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: %s MIX_PTX PROGRAM...\n", arguments[0]);
        return 2;
    }
    FILE *file = fopen(arguments[1], "r");
    EXPECT(file != NULL);
    mix_text = calloc(1, 1 << 16);
    operations = calloc(MOST_OPERATIONS, sizeof *operations);
    EXPECT(fread(mix_text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    CHECK(cuInit(0));
    /* On a GPU, a context takes longer than many programs. */
    CUcontext kept;
    if (getenv("KEEP_CONTEXT"))
        CHECK(cuDevicePrimaryCtxRetain(&kept, 0));
    for (int at = 2; at < count; at++)
        run_program(arguments[at]);
    return success();
}
