/* What driver calls cost a program: run bare, recorded and under other tools in turn, and compare.
 *
 *   call_cost calls CALLS LAUNCHES      nanoseconds of a clock read, of calls without device work,
 *                                       and of launches
 *   call_cost pinned CALLS LAUNCHES     the same of what a training step makes, in a program that
 *                                       has registered host memory
 *   call_cost cold CALLS                the same of single calls, when other code has run since the
 *                                       last one
 *   call_cost threads THREADS CALLS     nanoseconds of a call that THREADS threads make at once
 *   call_cost tail CALLS [FOLDER]       the time of single calls: the worst, how many are slow,
 *                                       and why, as far as can be seen
 *   call_cost upload MIB ROUNDS [FOLDER]  MiB/s of copies to the device, of memcpy, and of ways to
 *                                         keep the bytes in that folder
 *   call_cost loop FUNCTION CALLS       nothing but that many calls of one function, see
 *                                       `functions`: to be counted from outside
 *
 * It prints lines of "name value". For calls and launches: the mean of the best round, because
 * other load on the machine only adds time, and the median of parts of 100 calls, which leaves out
 * rare events. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "cuda_api.h"

#define CHECK(call)                                                      \
    do {                                                                 \
        CUresult result_ = (call);                                       \
        if (result_ != CUDA_SUCCESS) {                                   \
            fprintf(stderr, "call_cost: %s gave %d\n", #call, result_);  \
            exit(1);                                                     \
        }                                                                \
    } while (0)

static const char kernels[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry nothing() { ret; }\n"
    ".visible .entry eight(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u32 p3,\n"
    "                      .param .u32 p4, .param .f32 p5, .param .u64 p6, .param .u64 p7) { ret; "
    "}\n"
    ".visible .entry mixed(.param .u32 p0, .param .align 1 .b8 p1[1], .param .align 8 .b8 p2[24], "
    ".param .u64 p3) { ret; }\n";

enum { ROUNDS = 20, PART = 100, LAUNCHES_IN_FLIGHT = 500 };

static CUcontext context;
static CUfunction nothing, eight, mixed;
static CUevent event;
static CUdeviceptr device_memory;

static double nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void start(void)
{
    CUdevice device;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernels));
    CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK(cuModuleGetFunction(&eight, module, "eight"));
    CHECK(cuModuleGetFunction(&mixed, module, "mixed"));
    CHECK(cuMemAlloc(&device_memory, 4096));
    CHECK(cuEventCreate(&event, 0));
}

static void get(long calls)
{
    for (long i = 0; i < calls; i++) {
        CUcontext current;
        cuCtxGetCurrent(&current);
    }
}

static void set(long calls)
{
    for (long i = 0; i < calls; i++)
        cuCtxSetCurrent(context);
}

/* Returns two numbers; PyTorch calls it hundreds of times a step. */
static void state(long calls)
{
    for (long i = 0; i < calls; i++) {
        unsigned flags;
        int active;
        cuDevicePrimaryCtxGetState(0, &flags, &active);
    }
}

static void launch0(long calls)
{
    for (long i = 0; i < calls; i++)
        cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
}

static void launch8(long calls)
{
    CUdeviceptr a = 0x7f1200000000, b = 0x7f1200100000, c = 0x7f1200200000, d = 0x7f1200300000,
        e = 1 << 20;
    int m = 1024, n = 512;
    float f = 0.5f;
    void *parameters[] = {&a, &b, &c, &m, &n, &f, &d, &e};
    for (long i = 0; i < calls; i++)
        cuLaunchKernel(eight, 128, 1, 1, 256, 1, 1, 0, 0, parameters, 0);
}

/* Structs by value among numbers, as in kernels made from templates. */
static void launch_mixed(long calls)
{
    int n = 1 << 20;
    char operation = 1;
    CUdeviceptr arrays[3] = {0x7f1200000000, 0x7f1200100000, 0x7f1200200000}, last = 0x7f1200300000;
    void *parameters[] = {&n, &operation, arrays, &last};
    for (long i = 0; i < calls; i++)
        cuLaunchKernel(mixed, 2048, 1, 1, 128, 1, 1, 0, 0, parameters, 0);
}

/* A launch with attributes, as programs make that use clusters or overlapping launches. */
static void launch_ex(long calls)
{
    CUdeviceptr a = 0x7f1200000000, b = 0x7f1200100000, c = 0x7f1200200000, d = 0x7f1200300000,
        e = 1 << 20;
    int m = 1024, n = 512;
    float f = 0.5f;
    void *parameters[] = {&a, &b, &c, &m, &n, &f, &d, &e};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 0};
    CUlaunchConfig config = {.gridDimX = 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256,
                             .blockDimY = 1, .blockDimZ = 1,
                             .attrs = &attribute, .numAttrs = 1};
    for (long i = 0; i < calls; i++)
        cuLaunchKernelEx(&config, eight, parameters, 0);
}

static void event_record(long calls)
{
    for (long i = 0; i < calls; i++)
        cuEventRecord(event, 0);
}

static void event_query(long calls)
{
    for (long i = 0; i < calls; i++)
        cuEventQuery(event);
}

static void memset_async(long calls)
{
    for (long i = 0; i < calls; i++)
        cuMemsetD8Async(device_memory, 0, 256, 0);
}

static void pointer(long calls)
{
    unsigned type;
    for (long i = 0; i < calls; i++)
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_memory);
}

enum { REGISTERED = 1 << 20 };

/* Host memory that the device can reach, and that no call names. */
static void register_memory(void)
{
    void *memory = aligned_alloc(4096, REGISTERED);
    CHECK(memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    memset(memory, 1, REGISTERED);
    CHECK(cuMemHostRegister(memory, REGISTERED, CU_MEMHOSTREGISTER_DEVICEMAP));
}

/* A function that is called again and again; `needs_memory`: in a program that has registered host
 * memory. */
static const struct function {
    const char *name;
    void (*run)(long);
    int needs_memory;
} functions[] = {
    {"get", get, 0},
    {"set", set, 0},
    {"state", state, 0},
    {"launch0", launch0, 0},
    {"launch8", launch8, 0},
    {"launch_mixed", launch_mixed, 0},
    {"pinned_launch8", launch8, 1},
    {"launch_ex", launch_ex, 1},
    {"event_record", event_record, 1},
    {"event_query", event_query, 1},
    {"memset", memset_async, 1},
    {"pointer", pointer, 1},
};

static const struct function *function_named(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions + i;
    fprintf(stderr, "call_cost: no function %s\n", name);
    exit(2);
}

static int by_size(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Measures one of `calls`. Launches never fill the device's queue, because waiting for it would
 * hide the cost of a call. */
static void cost(const char *name, void (*run)(long), long calls, int are_launches)
{
    long parts = calls / PART;
    double best = 1e18, best_median = 1e18;
    double *times = malloc(parts * sizeof *times);
    for (int round = 0; round < ROUNDS; round++) {
        double spent = 0;
        for (long part = 0; part < parts; part++) {
            double from = nanoseconds();
            run(PART);
            times[part] = (nanoseconds() - from) / PART;
            spent += times[part] / parts;
            if (are_launches && part % (LAUNCHES_IN_FLIGHT / PART) == 0)
                CHECK(cuCtxSynchronize());
        }
        qsort(times, parts, sizeof *times, by_size);
        if (spent < best)
            best = spent;
        if (times[parts / 2] < best_median)
            best_median = times[parts / 2];
    }
    free(times);
    printf("%s_ns %.2f\n%s_median_ns %.2f\n", name, best, name, best_median);
}

static void clock_reads(long calls)
{
    for (long i = 0; i < calls; i++) {
        uint64_t now = __rdtsc();
        /* Keeps the compiler from removing the read. */
        __asm__ volatile("" : : "r"(now));
    }
}

static void calls(long count, long launches)
{
    cost("clock_read", clock_reads, count, 0);
    cost("get", get, count, 0);
    cost("set", set, count, 0);
    cost("state", state, count, 0);
    cost("launch0", launch0, launches, 1);
    cost("launch8", launch8, launches, 1);
}

static void pinned(long count, long launches)
{
    register_memory();
    cost("clock_read", clock_reads, count, 0);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].needs_memory) {
            int is_query = functions[i].run == event_query || functions[i].run == pointer;
            cost(functions[i].name, functions[i].run, is_query ? count : launches, !is_query);
        }
}

/* Code that jumps through all its cache lines in an unpredictable order. It replaces the content of
 * instruction caches and branch predictors, as a program's own code does between two calls. */
static void *make_code(size_t lines)
{
    enum { LINE = 64 };
    unsigned char *code = mmap(NULL, lines * LINE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t *order = malloc(lines * sizeof *order);
    CHECK(code != MAP_FAILED && order != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t random = 1;
    for (size_t i = 0; i < lines; i++)
        order[i] = i;
    for (size_t i = lines - 1; i > 1; i--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t other = 1 + (random >> 33) % i;
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i + 1 < lines; i++) {
        unsigned char *line = code + (size_t)order[i] * LINE;
        int32_t distance = ((int32_t)order[i + 1] - (int32_t)order[i]) * LINE - 5;
        line[0] = 0xe9; /* jmp */
        memcpy(line + 1, &distance, sizeof distance);
    }
    code[(size_t)order[lines - 1] * LINE] = 0xc3; /* ret */
    free(order);
    CHECK(mprotect(code, lines * LINE, PROT_READ | PROT_EXEC) == 0
          ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
    return code;
}

/* Measures calls between which the program uses other code and data: the mean of the fastest nine
 * tenths. */
static void cold(long calls)
{
    enum { CODE = 4096, DATA = 1024, LINE = 64 };
    void (*others)(void) = (void (*)(void))make_code(CODE);
    volatile char *data = calloc(DATA, LINE);
    double *times = malloc(calls * sizeof *times);
    double from = nanoseconds();
    uint64_t first = __rdtsc();
    get(1000000);
    double ticks_per_ns = (__rdtsc() - first) / (nanoseconds() - from);
    static const char *const names[] = {NULL, "get", "set", "state", "launch8"};
    for (size_t which = 0; which < sizeof names / sizeof *names; which++) {
        void (*run)(long) = names[which] != NULL ? function_named(names[which])->run : NULL;
        for (long i = 0; i < calls; i++) {
            others();
            for (int line = 0; line < DATA; line++)
                data[(line * 389 + 7) % DATA * LINE];
            unsigned processor;
            uint64_t before = __rdtscp(&processor);
            _mm_lfence();
            if (run != NULL)
                run(1);
            uint64_t spent = __rdtscp(&processor) - before;
            times[i] = spent / ticks_per_ns;
            if (run == launch8 && i % LAUNCHES_IN_FLIGHT == 0)
                CHECK(cuCtxSynchronize());
        }
        qsort(times, calls, sizeof *times, by_size);
        double sum = 0;
        for (long i = 0; i < calls / 10 * 9; i++)
            sum += times[i];
        printf("cold_%s_ns %.2f\n", run != NULL ? names[which] : "nothing", sum / (calls / 10 * 9));
    }
    free(times);
    free((void *)data);
}

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    long calls;
    double best, best_median;
};

static void *work(void *given)
{
    struct worker *worker = given;
    CHECK(cuCtxSetCurrent(context));
    get(1000);
    worker->best = worker->best_median = 1e18;
    long parts = worker->calls / PART;
    double *times = malloc(parts * sizeof *times);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(worker->start);
        double spent = 0;
        for (long part = 0; part < parts; part++) {
            double from = nanoseconds();
            get(PART);
            times[part] = (nanoseconds() - from) / PART;
            spent += times[part] / parts;
        }
        qsort(times, parts, sizeof *times, by_size);
        if (spent < worker->best)
            worker->best = spent;
        if (times[parts / 2] < worker->best_median)
            worker->best_median = times[parts / 2];
    }
    free(times);
    return NULL;
}

static void threads(int count, long calls)
{
    struct worker *workers = calloc(count, sizeof *workers);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, count);
    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){.start = &barrier, .calls = calls};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            fprintf(stderr, "call_cost: cannot start thread %d\n", i);
            exit(1);
        }
    }
    double sum = 0, medians = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].best;
        medians += workers[i].best_median;
    }
    printf("threads_%d_ns %.2f\nthreads_%d_median_ns %.2f\n", count, sum / count, count,
           medians / count);
    free(workers);
}

/* Writes about as much as the recorder of a loop of calls, in pieces of the same length. */
static void write_on(const char *folder)
{
    enum { PIECE = 64 << 10, MOST = 600 << 20 };
    char path[4096];
    snprintf(path, sizeof path, "%s/call_cost.%d.written", folder, getppid());
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unlink(path);
    char *piece = malloc(PIECE);
    memset(piece, 1, PIECE);
    for (off_t at = 0;; at = (at + PIECE) % MOST) {
        if (at == 0 && ftruncate(file, 0) != 0)
            _exit(1);
        if (pwrite(file, piece, PIECE, at) != PIECE)
            _exit(1);
        nanosleep(&(struct timespec){.tv_nsec = 70000}, NULL);
    }
}

/* Times each call alone and counts slow ones, with those during which the thread was preempted or
 * had a page fault. An empty loop shows the machine's own interruptions and, if a folder is given,
 * those while another process writes files. */
static void tail(long calls, const char *folder)
{
    enum { EVERY = 256 };
    static const struct {
        const char *name;
        int with_call, beside_writer;
    } passes[] = {{"nothing", 0, 0}, {"call", 1, 0}, {"nothing_beside_writer", 0, 1}};
    double from = nanoseconds();
    uint64_t first = __rdtsc();
    get(1000000);
    double ticks_per_ns = (__rdtsc() - first) / (nanoseconds() - from);
    for (size_t pass = 0; pass < sizeof passes / sizeof *passes; pass++) {
        pid_t writer = 0;
        if (passes[pass].beside_writer) {
            if (folder == NULL)
                break;
            writer = fork();
            if (writer == 0)
                write_on(folder);
            usleep(300000);
        }
        uint64_t worst = 0;
        long slow[3] = {0}, preempted = 0, faulted = 0, unexplained = 0;
        struct rusage before_part, after_part;
        getrusage(RUSAGE_THREAD, &before_part);
        for (long i = 0; i < calls; i++) {
            CUcontext current;
            uint64_t before = __rdtsc();
            if (passes[pass].with_call)
                cuCtxGetCurrent(&current);
            uint64_t spent = __rdtsc() - before;
            if (spent > worst)
                worst = spent;
            slow[0] += spent > 1e3 * ticks_per_ns;
            slow[1] += spent > 1e4 * ticks_per_ns;
            int is_slow = spent > 5e4 * ticks_per_ns;
            slow[2] += is_slow;
            if (is_slow || i % EVERY == 0) {
                getrusage(RUSAGE_THREAD, &after_part);
                int was_preempted = after_part.ru_nivcsw != before_part.ru_nivcsw;
                int has_faulted = after_part.ru_minflt != before_part.ru_minflt;
                preempted += is_slow && was_preempted;
                faulted += is_slow && has_faulted;
                unexplained += is_slow && !was_preempted && !has_faulted;
                before_part = after_part;
            }
        }
        if (writer > 0) {
            kill(writer, SIGKILL);
            waitpid(writer, NULL, 0);
        }
        const char *name = passes[pass].name;
        printf("tail_%s_worst_us %.2f\n", name, worst / ticks_per_ns / 1e3);
        printf("tail_%s_above_1us %ld\n", name, slow[0]);
        printf("tail_%s_above_10us %ld\n", name, slow[1]);
        printf("tail_%s_above_50us %ld\n", name, slow[2]);
        printf("tail_%s_above_50us_preempted %ld\n", name, preempted);
        printf("tail_%s_above_50us_faulted %ld\n", name, faulted);
        printf("tail_%s_above_50us_neither %ld\n", name, unexplained);
    }
}

static void write_all(int file, const char *source, size_t length)
{
    enum { PIECE = 1 << 20 };
    for (size_t done = 0; done < length;) {
        size_t piece = length - done < PIECE ? length - done : PIECE;
        ssize_t written = pwrite(file, source + done, piece, done);
        CHECK(written > 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
        done += written;
    }
}

static void keep_least(double *best, double from)
{
    double spent = nanoseconds() - from;
    if (spent < *best)
        *best = spent;
}

/* Best seconds for writing memory to a new file, to a file with allocated space, over existing
 * pages of a file, and to a file in memory: the least that keeping the bytes can cost. */
struct kept {
    double file, allocated, over, memory;
};

static void keep(const char *path, const char *source, size_t length, char *memory,
                 struct kept *best)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
    double from = nanoseconds();
    write_all(file, source, length);
    keep_least(&best->file, from);
    CHECK(ftruncate(file, 0) == 0 && posix_fallocate(file, 0, length) == 0
          ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
    from = nanoseconds();
    write_all(file, source, length);
    keep_least(&best->allocated, from);
    from = nanoseconds();
    write_all(file, source, length);
    keep_least(&best->over, from);
    close(file);
    unlink(path);
    from = nanoseconds();
    memcpy(memory, source, length);
    __asm__ volatile("" : : "r"(memory) : "memory");
    keep_least(&best->memory, from);
}

static char *memory_file(size_t length)
{
    int file = memfd_create("call_cost", 0);
    CHECK(file >= 0 && ftruncate(file, length) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    CHECK(memory != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    close(file);
    return memory;
}

static void upload(long mib, int rounds, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/call_cost.%d.written", folder != NULL ? folder : "", getpid());
    size_t length = (size_t)mib << 20;
    char *source = malloc(length), *copy = malloc(length);
    CUdeviceptr target;
    if (source == NULL || copy == NULL) {
        fprintf(stderr, "call_cost: no memory for %ld MiB\n", mib);
        exit(1);
    }
    memset(source, 1, length);
    memset(copy, 2, length);
    CHECK(cuMemAlloc(&target, length));
    double best_copy = 1e18, best_upload = 1e18;
    struct kept kept = {1e18, 1e18, 1e18, 1e18};
    char *memory = folder != NULL ? memory_file(length) : NULL;
    for (int round = 0; round < rounds; round++) {
        double from = nanoseconds();
        memcpy(copy, source, length);
        /* Keeps the compiler from removing the copy. */
        __asm__ volatile("" : : "r"(copy) : "memory");
        keep_least(&best_copy, from);
        /* The recorder writes bytes only if they have changed. */
        source[0] = (char)round;
        from = nanoseconds();
        CHECK(cuMemcpyHtoD(target, source, length));
        keep_least(&best_upload, from);
        if (folder != NULL)
            keep(path, source, length, memory, &kept);
    }
    printf("memcpy_mib_s %.0f\n", mib / best_copy * 1e9);
    printf("upload_mib_s %.0f\n", mib / best_upload * 1e9);
    if (folder != NULL) {
        printf("file_write_mib_s %.0f\n", mib / kept.file * 1e9);
        printf("file_write_allocated_mib_s %.0f\n", mib / kept.allocated * 1e9);
        printf("file_write_over_mib_s %.0f\n", mib / kept.over * 1e9);
        printf("memory_file_mib_s %.0f\n", mib / kept.memory * 1e9);
        munmap(memory, length);
    }
    CHECK(cuMemFree(target));
    free(source);
    free(copy);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    long first = count > 2 ? atol(words[2]) : 0, second = count > 3 ? atol(words[3]) : 0;
    if (strcmp(what, "calls") == 0 && first >= PART && second >= PART) {
        start();
        calls(first, second);
    } else if (strcmp(what, "pinned") == 0 && first >= PART && second >= PART) {
        start();
        pinned(first, second);
    } else if (strcmp(what, "cold") == 0 && first >= PART) {
        start();
        cold(first);
    } else if (strcmp(what, "threads") == 0 && first > 0 && second >= PART) {
        start();
        threads((int)first, second);
    } else if (strcmp(what, "tail") == 0 && first > 0) {
        start();
        tail(first, count > 3 ? words[3] : NULL);
    } else if (strcmp(what, "upload") == 0 && first > 0 && second > 0) {
        start();
        upload(first, (int)second, count > 4 ? words[4] : NULL);
    } else if (strcmp(what, "loop") == 0 && count > 3 && second > 0) {
        const struct function *function = function_named(words[2]);
        start();
        if (function->needs_memory)
            register_memory();
        function->run(second);
    } else {
        fprintf(stderr,
                "usage: call_cost calls CALLS LAUNCHES | pinned CALLS LAUNCHES | cold CALLS | "
                "threads THREADS CALLS | tail CALLS [FOLDER]\n"
                        "       | upload MIB ROUNDS [FOLDER] | loop FUNCTION CALLS\n");
        return 2;
    }
    return 0;
}
