/* Memory of several kinds whose words a kernel changes from what they were, so that they depend on
 * all rounds before: while the last calls are kept, or while recording is stopped and started.
 *   evolving MIX_PTX captures|host_functions|loop|middle|toggled|whole
 * loop goes on until stdin is closed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "program.h"

enum { THREADS = 3, KINDS = 4, COUNT = 5000, BYTES = 4 * COUNT, ROUNDS = 400 };

static int (*start_recording)(void);
static int (*stop_recording)(void);
static CUfunction mix;
/* Of all threads. */
static atomic_int rounds;
static atomic_int is_done;

static void find_recorder(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(library != NULL);
    start_recording = (int (*)(void))dlsym(library, "cutape_start");
    stop_recording = (int (*)(void))dlsym(library, "cutape_stop");
}

static void load_mix(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    EXPECT(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    CUmodule module;
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&mix, module, "cutape_mix"));
}

/* Memory that is mapped to addresses; the handle is released at once. */
static CUdeviceptr map_memory(size_t *length)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemAccessDesc access = {.location = properties.location, .flags = 3};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CHECK(cuMemGetAllocationGranularity(length, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemCreate(&handle, *length, &properties, 0));
    CHECK(cuMemAddressReserve(&address, *length, 0, 0, 0));
    CHECK(cuMemMap(address, *length, 0, handle, 0));
    CHECK(cuMemSetAccess(address, *length, &access, 1));
    CHECK(cuMemRelease(handle));
    return address;
}

static void mix_words(CUdeviceptr target, CUdeviceptr source, uint32_t seed, CUstream stream)
{
    uint32_t count = COUNT;
    void *parameters[] = {&target, &source, &count, &seed};
    launch(mix, (COUNT + 127) / 128, 128, stream, parameters);
}

/* What a thread works on. */
struct worker {
    uint32_t number;
    /* What memory holds is read in every so many rounds. */
    uint32_t reads;
    CUstream stream;
    CUdeviceptr memory[KINDS];
    size_t mapped;
    uint32_t sum;
};

static void begin_work(struct worker *worker)
{
    static uint32_t first[COUNT];
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&worker->memory[0], BYTES));
    CHECK(cuMemAllocAsync(&worker->memory[1], BYTES, worker->stream));
    worker->memory[2] = map_memory(&worker->mapped);
    CHECK(cuMemAlloc(&worker->memory[3], BYTES));
    for (int kind = 0; kind < KINDS; kind++)
        CHECK(cuMemcpyHtoDAsync(worker->memory[kind], first, BYTES, worker->stream));
    CHECK(cuStreamSynchronize(worker->stream));
}

static void one_round(struct worker *worker, uint32_t round)
{
    for (int kind = 0; kind < KINDS; kind++)
        mix_words(worker->memory[kind], worker->memory[(kind + 1) % KINDS],
                  round * 8 + kind + worker->number, worker->stream);
    /* Memory that lives for a round. */
    CUdeviceptr brief;
    CHECK(cuMemAllocAsync(&brief, 512, worker->stream));
    CHECK(cuMemcpyDtoDAsync(brief, worker->memory[0], 512, worker->stream));
    CHECK(cuMemcpyDtoDAsync(worker->memory[1], brief, 512, worker->stream));
    CHECK(cuMemFreeAsync(brief, worker->stream));
    if (round % worker->reads == worker->reads - 1) {
        static _Thread_local uint32_t out[COUNT];
        for (int kind = 0; kind < KINDS; kind++) {
            CHECK(cuMemcpyDtoHAsync(out, worker->memory[kind], BYTES, worker->stream));
            CHECK(cuStreamSynchronize(worker->stream));
            worker->sum = worker->sum * 31 + out[round % COUNT];
        }
    }
}

static void end_work(struct worker *worker)
{
    CHECK(cuMemFreeAsync(worker->memory[1], worker->stream));
    CHECK(cuStreamSynchronize(worker->stream));
    CHECK(cuMemFree(worker->memory[0]));
    CHECK(cuMemFree(worker->memory[3]));
    CHECK(cuMemUnmap(worker->memory[2], worker->mapped));
    CHECK(cuMemAddressFree(worker->memory[2], worker->mapped));
    CHECK(cuStreamDestroy(worker->stream));
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    begin_work(worker);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        one_round(worker, round);
        rounds++;
    }
    end_work(worker);
    return NULL;
}

static void wait_for_rounds(int count)
{
    while (rounds < count)
        usleep(100);
}

/* Recording stops and starts while threads work. */
static void toggled(void)
{
    struct worker workers[THREADS] = {{0}};
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].reads = 16;
        EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; stop_recording != NULL && i < 20; i++) {
        wait_for_rounds(60 * i + 20);
        stop_recording();
        wait_for_rounds(60 * i + 40);
        start_recording();
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
        printf("%u\n", workers[i].sum);
    }
}

/* Recording stops after 100 rounds and starts after 200, if it does. */
static void middle(int stops)
{
    struct worker worker = {.reads = 16};
    begin_work(&worker);
    for (uint32_t round = 0; round < 300; round++) {
        if (round == 100 && stops && stop_recording != NULL)
            stop_recording();
        if (round == 200 && stops && start_recording != NULL)
            start_recording();
        one_round(&worker, round);
    }
    printf("%u\n", worker.sum);
    end_work(&worker);
}

/* A blocking stream captures again and again. */
static void *capture(void *unused)
{
    CUstream stream;
    CUdeviceptr memory;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc(&memory, BYTES));
    while (!is_done) {
        CUgraph graph;
        CUdeviceptr of_graph;
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK(cuMemAllocAsync(&of_graph, BYTES, stream));
        CHECK(cuMemsetD32Async(memory, 1, COUNT, stream));
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
        rounds++;
        usleep(300);
    }
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    return unused;
}

static void CUDA_CB wait_for_a_round(void *unused)
{
    int before = rounds;
    (void)unused;
    while (rounds == before && !is_done)
        usleep(20);
}

/* Host functions of a blocking stream wait for the other thread. */
static void *call_host_functions(void *unused)
{
    CUstream stream;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    while (!is_done) {
        CHECK(cuLaunchHostFunc(stream, wait_for_a_round, NULL));
        CHECK(cuStreamSynchronize(stream));
        usleep(5000);
    }
    CHECK(cuStreamDestroy(stream));
    return unused;
}

/* Recording stops and starts beside what a thread does: memory is read while a copy of it would take
 * long. */
static void beside(void *(*work)(void *), void (*stop_and_start)(int pause, CUdeviceptr memory, CUstream stream))
{
    enum { LARGE = 64 << 20 };
    pthread_t thread;
    CUstream stream;
    CUdeviceptr memory;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, LARGE));
    CHECK(cuMemsetD8Async(memory, 1, LARGE, stream));
    EXPECT(pthread_create(&thread, NULL, work, NULL) == 0);
    for (int i = 0; stop_recording != NULL && i < 20; i++)
        stop_and_start(i, memory, stream);
    is_done = 1;
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
}

static void until_captured(int pause, CUdeviceptr memory, CUstream stream)
{
    stop_recording();
    wait_for_rounds(20 * pause + 10);
    start_recording();
    while (rounds < 20 * pause + 20)
        CHECK(cuMemsetD8Async(memory, pause, 64, stream));
}

/* Not for the null driver, which runs host functions in any call, also of this thread. */
static void let_host_functions_return(int pause, CUdeviceptr memory, CUstream stream)
{
    stop_recording();
    start_recording();
    for (int j = 0; j < 100; j++) {
        CHECK(cuMemsetD8Async(memory, pause, 64, stream));
        rounds++;
        usleep(50);
    }
}

static void *read_stdin(void *unused)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    is_done = 1;
    return unused;
}

static void loop(void)
{
    struct worker worker = {.reads = 1};
    pthread_t reader;
    EXPECT(pthread_create(&reader, NULL, read_stdin, NULL) == 0);
    begin_work(&worker);
    for (uint32_t round = 0; !is_done; round++) {
        one_round(&worker, round);
        usleep(1000);
    }
    end_work(&worker);
    EXPECT(pthread_join(reader, NULL) == 0);
}

int main(int count, char **arguments)
{
    EXPECT(count == 3);
    begin();
    find_recorder();
    load_mix(arguments[1]);
    if (strcmp(arguments[2], "toggled") == 0)
        toggled();
    else if (strcmp(arguments[2], "captures") == 0)
        beside(capture, until_captured);
    else if (strcmp(arguments[2], "host_functions") == 0)
        beside(call_host_functions, let_host_functions_return);
    else if (strcmp(arguments[2], "loop") == 0)
        loop();
    else
        middle(strcmp(arguments[2], "middle") == 0);
    end();
    return success();
}
