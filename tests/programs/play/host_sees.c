/* What the host sees of the device without a copy to the host, in the way that the first argument
 * says; prints what it read. With DEVICE in the environment the program itself writes what kernels
 * would have written: on the null driver, which runs none. A program that is played has no DEVICE, so
 * that what kernels wrote can only come from the recording. With CHANGES_BACK, it sets a value that it
 * has polled back before its next call, which no recording shows. */
#include "program.h"

#include <pthread.h>
#include <sys/mman.h>

enum { COUNT = 1000, BYTES = COUNT * 4, PAGE = 4096, ROUNDS = 5 };

/* scatter(table, value): *table[0] = value, *table[1] = value + 1. */
static const char scatter_text[] = PTX_HEAD
    ".visible .entry scatter(.param .u64 table, .param .u32 value)\n{\n"
    " .reg .b64 %table, %target;\n .reg .b32 %value;\n"
    " ld.param.u64 %table, [table];\n ld.param.u32 %value, [value];\n"
    " ld.u64 %target, [%table];\n st.u32 [%target], %value;\n"
    " ld.u64 %target, [%table + 8];\n add.u32 %value, %value, 1;\n st.u32 [%target], %value;\n"
    " ret;\n}\n";

typedef volatile uint32_t *Words;

static int is_device;
static CUmodule module;
static CUfunction fill;
static CUstream stream;
/* How long pinned memory is, of the programs that measure. */
static size_t size;
/* What another thread polls, and whether it has come. */
static Words polled;
static volatile int is_seen;

/* A kernel writes value, value + 1, ... to memory that host and device share. */
static void fill_words(void *memory, CUdeviceptr view, uint32_t value, uint32_t count)
{
    void *parameters[] = {&view, &value, &count};
    launch(fill, (count + 127) / 128, 128, stream, parameters);
    for (uint32_t i = 0; is_device && i < count; i++)
        ((Words)memory)[i] = value + i;
}

static void *pinned(size_t bytes, unsigned flags, CUdeviceptr *view)
{
    void *memory = NULL;
    CHECK(cuMemHostAlloc(&memory, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(view, memory, 0));
    memset(memory, 0, bytes < BYTES ? bytes : BYTES);
    return memory;
}

static void until(Words word, uint32_t value)
{
    while (*word != value)
        ;
}

/* Memory that a kernel, a memset and a copy on the device write by its device address. */
static void written(void *memory, CUdeviceptr view)
{
    CUdeviceptr other = 0;
    uint32_t *words = memory;
    for (uint32_t round = 0; round < 2; round++) {
        fill_words(memory, view, 100 + round, COUNT);
        CHECK(cuStreamSynchronize(stream));
        show_u32("by a kernel", words, COUNT);
        words[3] = 7;
        fill_words(words + 10, view + 40, 5, 2);
        CHECK(cuStreamSynchronize(stream));
        show_u32("by the host and a kernel", words, COUNT);
    }
    CHECK(cuMemsetD32Async(view, 9, 10, stream));
    CHECK(cuStreamSynchronize(stream));
    show_u32("by a memset", words, COUNT);
    CHECK(cuMemAlloc(&other, BYTES));
    CHECK(cuMemcpyHtoD(other, words + COUNT / 2, BYTES / 2));
    CHECK(cuMemcpyDtoDAsync(view, other, BYTES / 2, stream));
    CHECK(cuStreamSynchronize(stream));
    show_u32("by a copy", words, COUNT);
    CHECK(cuMemFree(other));
}

static void written_pinned(void)
{
    CUdeviceptr view = 0;
    void *memory = pinned(BYTES, 0, &view);
    written(memory, view);
    CHECK(cuMemFreeHost(memory));
}

static void written_registered(void)
{
    CUdeviceptr view = 0;
    void *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(cuMemHostRegister(memory, 4 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&view, memory, 0));
    written(memory, view);
    CHECK(cuMemHostUnregister(memory));
    munmap(memory, 4 * PAGE);
}

static void written_managed(void)
{
    CUdeviceptr managed = 0;
    CHECK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)managed, 0, BYTES);
    written((void *)(uintptr_t)managed, managed);
    CHECK(cuMemFree(managed));
}

/* A managed variable of a module, and of a library. */
static void written_variable(void)
{
    CUmodule variables = load_ptx(PTX_MANAGED);
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUdeviceptr shared[2] = {0, 0};
    size_t length = 0;
    CHECK(cuModuleGetGlobal(&shared[0], &length, variables, "both_sides"));
    CHECK(cuLibraryLoadData(&library, PTX_MANAGED, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "double_it"));
    /* as the runtime does, which does not ask for the length, and has no context yet */
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuLibraryGetManaged(&shared[1], NULL, library, "both_sides"));
    CHECK(cuCtxSetCurrent(context));
    CUfunction doubles[2] = {function_of(variables, "double_it"), (CUfunction)kernel};
    for (int i = 0; i < 2; i++) {
        Words value = (Words)(uintptr_t)shared[i];
        *value = 21 + i;
        launch(doubles[i], 1, 1, stream, NULL);
        if (is_device)
            *value *= 2;
        CHECK(cuStreamSynchronize(stream));
        show("variable", *value);
    }
    CHECK(cuLibraryUnload(library));
    CHECK(cuModuleUnload(variables));
}

/* Memory of which the kernel finds the address in other memory. */
static void written_indirectly(void)
{
    CUmodule scatters = load_ptx(scatter_text);
    CUfunction scatter = function_of(scatters, "scatter");
    CUdeviceptr targets[2], table = 0;
    uint32_t *words[2], value = 70;
    for (int i = 0; i < 2; i++)
        words[i] = pinned(PAGE, 0, &targets[i]);
    CHECK(cuMemAlloc(&table, sizeof targets));
    CHECK(cuMemcpyHtoD(table, targets, sizeof targets));
    void *parameters[] = {&table, &value};
    for (int round = 0; round < 2; round++, value += 10) {
        launch(scatter, 1, 1, stream, parameters);
        for (int i = 0; is_device && i < 2; i++)
            *(Words)words[i] = value + i;
        CHECK(cuStreamSynchronize(stream));
        printf("by a table: %u %u\n", words[0][0], words[1][0]);
    }
    CHECK(cuMemFree(table));
    for (int i = 0; i < 2; i++)
        CHECK(cuMemFreeHost(words[i]));
    CHECK(cuModuleUnload(scatters));
}

/* Places far apart in a long range. */
static void written_long(void)
{
    CUdeviceptr view = 0;
    char *memory = pinned(size, 0, &view);
    for (uint32_t round = 0; round < 3; round++) {
        for (size_t place = 0; place < size; place += size / 4)
            fill_words(memory + place, view + place, (uint32_t)(place / 4096) + round, 10);
        CHECK(cuStreamSynchronize(stream));
        for (size_t place = 0; place < size; place += size / 4)
            show_u32("far apart", (uint32_t *)(memory + place), 10);
    }
    CHECK(cuMemFreeHost(memory));
}

/* A flag, and what was written before it; no call waits between rounds. */
static void polled_rounds(void)
{
    CUdeviceptr flag_view = 0, view = 0;
    Words flag = pinned(PAGE, 0, &flag_view);
    uint32_t *words = pinned(BYTES, 0, &view);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        fill_words(words, view, 1000 * round, COUNT);
        fill_words((void *)flag, flag_view, round, 1);
        until(flag, round);
        show_u32("behind the flag", words, COUNT);
        words[0] = round;
    }
    CHECK(cuStreamSynchronize(stream));
    show_u32("at the end", words, COUNT);
    CHECK(cuMemFreeHost((void *)flag));
    CHECK(cuMemFreeHost(words));
}

/* The flag, before anything else is called; the host sets it back after the call. */
static void polled_once(void)
{
    CUdeviceptr view = 0;
    Words flag = pinned(PAGE, 0, &view);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        fill_words((void *)flag, view, 7, 1);
        until(flag, 7);
        show("flag", *flag);
#ifdef CHANGES_BACK
        *flag = 0;
#endif
        CHECK(cuStreamSynchronize(stream));
        *flag = 0;
    }
    CHECK(cuMemFreeHost((void *)flag));
}

static void *poll(void *unused)
{
    (void)unused;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        until(polled, round);
        is_seen = (int)round;
    }
    return NULL;
}

/* A thread that makes no calls polls what a kernel of another one writes. */
static void polled_by_thread(void)
{
    pthread_t poller;
    CUdeviceptr view = 0;
    polled = pinned(PAGE, 0, &view);
    EXPECT(pthread_create(&poller, NULL, poll, NULL) == 0);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        fill_words((void *)polled, view, round, 1);
        while (is_seen != (int)round)
            usleep(100);
        show("seen", *polled);
    }
    EXPECT(pthread_join(poller, NULL) == 0);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost((void *)polled));
}

/* The target of an asynchronous copy. */
static void polled_copy(void)
{
    CUdeviceptr view = 0, source = 0;
    Words words = pinned(BYTES, 0, &view);
    CHECK(cuMemAlloc(&source, BYTES));
    CHECK(cuMemsetD32(source, 0, COUNT));
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t count = COUNT;
        void *parameters[] = {&source, &round, &count};
        launch(fill, 8, 128, stream, parameters);
        CHECK(cuMemcpyDtoHAsync((void *)words, source, BYTES, stream));
        for (uint32_t i = COUNT; is_device && i-- > 0;)
            words[i] = round + i;
        until(&words[COUNT - 1], round + COUNT - 1);
        until(&words[0], round);
        show_u32("copied", (uint32_t *)words, COUNT);
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(source));
    CHECK(cuMemFreeHost((void *)words));
}

static void CUDA_CB use_words(void *words)
{
    show_u32("used", words, COUNT);
    is_seen++;
}

static void CUDA_CB use_words_of(CUstream of, CUresult status, void *words)
{
    EXPECT(of == stream && status == CUDA_SUCCESS);
    use_words(words);
}

/* What copies bring to staging memory, which a function of the stream uses. The next copy goes there
 * as soon as it has, which no call shows. */
static void used_by_functions(void)
{
    CUdeviceptr view = 0, source = 0;
    Words words = pinned(2 << 20, 0, &view);
    CHECK(cuMemAlloc(&source, BYTES));
    CHECK(cuMemsetD32(source, 0, COUNT));
    is_seen = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t count = COUNT;
        void *parameters[] = {&source, &round, &count};
        launch(fill, 8, 128, stream, parameters);
        CHECK(cuMemcpyDtoHAsync((void *)words, source, BYTES, stream));
        for (uint32_t i = 0; is_device && i < COUNT; i++)
            words[i] = round + i;
        if (round % 2 == 0)
            CHECK(cuStreamAddCallback(stream, use_words_of, (void *)words, 0));
        else
            CHECK(cuLaunchHostFunc(stream, use_words, (void *)words));
        until((Words)&is_seen, round);
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(source));
    CHECK(cuMemFreeHost((void *)words));
}

static void CUDA_CB count_up(void *unused)
{
    (void)unused;
    is_seen++;
}

/* Whether a function of the stream has run when the call that enqueues it has returned. */
static void times_of_functions(void)
{
    is_seen = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        CHECK(cuLaunchHostFunc(stream, count_up, NULL));
        show("ran", is_seen);
    }
    CHECK(cuStreamSynchronize(stream));
}

/* Words that streams write and wait for. */
static void polled_values(void)
{
    CUdeviceptr view = 0;
    Words words = pinned(PAGE, 0, &view);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        CHECK(cuStreamWaitValue32(stream, view, round, CU_STREAM_WAIT_VALUE_EQ));
        CHECK(cuStreamWriteValue32(stream, view + 4, round, 0));
        words[0] = round;
        until(&words[1], round);
        show("value", words[1]);
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost((void *)words));
}

/* Queries: how often work was not complete, times, memory, pointers. */
static void queries(void)
{
    CUevent events[2];
    CUdeviceptr memory = 0, view = 0;
    size_t before = 0, now = 0, total = 0;
    float milliseconds = -1;
    Words words = pinned(BYTES, 0, &view);
    CUresult answer;
    for (int i = 0; i < 2; i++)
        CHECK(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
    CHECK(cuMemGetInfo(&before, &total));
    CHECK(cuMemAlloc(&memory, 64 << 20));
    CHECK(cuMemGetInfo(&now, &total));
    printf("memory: %zu %zu %zu\n", before, now, total);
    for (uint32_t round = 0; round < 3; round++) {
        int polls[2] = {0, 0};
        CHECK(cuEventRecord(events[0], stream));
        CHECK(cuMemsetD8Async(memory, 1, 64 << 20, stream));
        CHECK(cuEventRecord(events[1], stream));
        fill_words((void *)words, view, round, COUNT);
        while ((answer = cuEventQuery(events[1])) == CUDA_ERROR_NOT_READY)
            polls[0]++;
        CHECK(answer);
        while ((answer = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
            polls[1]++;
        CHECK(answer);
        CHECK(cuEventElapsedTime(&milliseconds, events[0], events[1]));
        printf("polls: %d %d, %.6f ms\n", polls[0], polls[1], milliseconds);
        show_u32("after the queries", (uint32_t *)words, COUNT);
    }
    unsigned type = 0;
    size_t length = 0;
    int is_managed = -1;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *answers[] = {&type, &length, &is_managed};
    CHECK(cuPointerGetAttributes(3, asked, answers, memory + 100));
    printf("attributes: %u %zu %d\n", type, length, is_managed);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, view));
    unsigned long long id = 0;
    CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    printf("attributes: %u %llu\n", type, id);
    CHECK(cuMemFree(memory));
    for (int i = 0; i < 2; i++)
        CHECK(cuEventDestroy(events[i]));
    CHECK(cuMemFreeHost((void *)words));
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"pinned", written_pinned},
        {"registered", written_registered},
        {"managed", written_managed},
        {"variable", written_variable},
        {"indirect", written_indirectly},
        {"long", written_long},
        {"once", polled_once},
        {"rounds", polled_rounds},
        {"thread", polled_by_thread},
        {"copy", polled_copy},
        {"functions", used_by_functions},
        {"times", times_of_functions},
        {"values", polled_values},
        {"queries", queries},
    };
    is_device = getenv("DEVICE") != NULL;
    size = (size_t)(count > 2 ? atoi(arguments[2]) : 65) << 20;
    begin();
    module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (count > 1 && strcmp(arguments[1], ways[i].name) == 0)
            ways[i].run();
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
