/* Work that hangs or fails, in the way that the first argument names: for the tests of `hang`.
 * Where launches run no code, streams wait for a value instead of spinning. The program prints
 * HANGS when everything is enqueued. It ends when its standard input does, if it is not stuck. */
#include <pthread.h>
#include <time.h>

#include "program.h"

#define SPIN                                                    \
    "{\n .reg .pred p;\n .reg .u32 v;\n .reg .u64 a;\n"         \
    " ld.param.u64 a, [flag];\n"                                \
    "again:\n ld.volatile.global.u32 v, [a];\n"                 \
    " setp.eq.u32 p, v, 0;\n @p bra again;\n ret;\n}\n"

PTX_TEXT PTX_HANGS[] = PTX_HEAD
    ".visible .entry prepare()\n{\n ret;\n}\n"
    ".visible .entry finish()\n{\n ret;\n}\n"
    ".visible .entry spin(.param .u64 flag)\n" SPIN
    ".visible .entry all_reduce(.param .u64 flag)\n" SPIN
    ".visible .entry fault()\n{\n .reg .u64 a;\n .reg .u32 v;\n"
    " mov.u64 a, 16;\n mov.u32 v, 7;\n st.global.u32 [a], v;\n ret;\n}\n";

static CUfunction prepare, finish, spin, all_reduce, fault;
static CUstream first, second;
static int runs_kernels;
/* Page-locked words, all 0. */
static volatile uint32_t *flags;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static CUdeviceptr flag(unsigned at)
{
    return (CUdeviceptr)(uintptr_t)(flags + at);
}

/* Macros, so that the program's line of a launch is that of its test. */
#define LAUNCH(function, stream, parameters) \
    CHECK(cuLaunchKernel((function), 1, 1, 1, 1, 1, 1, 0, (stream), (parameters), NULL))

#define HOLD(function, stream, at)                                                             \
    do {                                                                                       \
        CUdeviceptr address = flag(at);                                                        \
        void *parameters[] = {&address};                                                       \
        if (runs_kernels)                                                                      \
            LAUNCH(function, stream, parameters);                                              \
        else                                                                                   \
            CHECK(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));          \
    } while (0)

static void hangs(void)
{
    puts("HANGS");
    fflush(stdout);
}

static void in_kernel(void)
{
    LAUNCH(prepare, first, NULL);
    HOLD(spin, first, 0);
    LAUNCH(finish, first, NULL);
    hangs();
    MISUSE(cuStreamSynchronize(first));
}

static void value_never_comes(void)
{
    LAUNCH(prepare, first, NULL);
    CHECK(cuStreamWaitValue32(first, flag(0), 7, CU_STREAM_WAIT_VALUE_EQ));
    LAUNCH(finish, first, NULL);
    hangs();
    MISUSE(cuStreamSynchronize(first));
}

static void each_other(void)
{
    LAUNCH(prepare, first, NULL);
    LAUNCH(prepare, second, NULL);
    CHECK(cuStreamWaitValue32(first, flag(0), 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cuStreamWriteValue32(first, flag(1), 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(cuStreamWaitValue32(second, flag(1), 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cuStreamWriteValue32(second, flag(0), 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    hangs();
    MISUSE(cuCtxSynchronize());
}

static void fault_in_graph(void)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    LAUNCH(prepare, first, NULL);
    LAUNCH(fault, first, NULL);
    LAUNCH(finish, first, NULL);
    CHECK(cuStreamEndCapture(first, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    LAUNCH(prepare, first, NULL);
    CHECK(cuGraphLaunch(exec, first));
    MISUSE(cuStreamSynchronize(first));
    hangs();
}

static void fault_in_stream(void)
{
    for (unsigned at = 0; at < 100; at++)
        LAUNCH(prepare, first, NULL);
    LAUNCH(fault, first, NULL);
    for (unsigned at = 0; at < 100; at++)
        MISUSE(cuLaunchKernel(finish, 1, 1, 1, 1, 1, 1, 0, first, NULL, NULL));
    MISUSE(cuStreamSynchronize(first));
    hangs();
}

/* Two ranks, of which one never comes. */
static void collective(void)
{
    LAUNCH(prepare, first, NULL);
    HOLD(all_reduce, first, 0);
    LAUNCH(prepare, second, NULL);
    CHECK(cuStreamSynchronize(second));
    hangs();
    MISUSE(cuStreamSynchronize(first));
}

static void event_never_comes(void)
{
    CUevent event = NULL;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    HOLD(spin, first, 0);
    CHECK(cuEventRecord(event, first));
    LAUNCH(prepare, second, NULL);
    CHECK(cuStreamWaitEvent(second, event, 0));
    LAUNCH(finish, second, NULL);
    hangs();
    MISUSE(cuStreamSynchronize(second));
}

static void legacy(void)
{
    CUstream blocking = NULL;
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    HOLD(spin, NULL, 0);
    LAUNCH(finish, blocking, NULL);
    hangs();
    MISUSE(cuStreamSynchronize(blocking));
}

static void CUDA_CB locks(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void callback(void)
{
    pthread_mutex_lock(&mutex);
    LAUNCH(prepare, first, NULL);
    CHECK(cuLaunchHostFunc(first, locks, NULL));
    LAUNCH(finish, first, NULL);
    hangs();
    MISUSE(cuStreamSynchronize(first));
}

/* What a launch costs, with the device's part if it is the longer one. */
static void cost(void)
{
    enum { ROUNDS = 100, LAUNCHES = 500 };
    struct timespec begun, ended;
    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        if (round == ROUNDS)
            clock_gettime(CLOCK_MONOTONIC, &begun);
        for (unsigned at = 0; at < LAUNCHES; at++)
            LAUNCH(prepare, first, NULL);
        CHECK(cuStreamSynchronize(first));
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = (double)(ended.tv_sec - begun.tv_sec)
                   + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
    printf("ns a launch: %.0f\n", seconds * 1e9 / (ROUNDS * LAUNCHES));
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } WAYS[] = {
        {"kernel", in_kernel},
        {"value", value_never_comes},
        {"each-other", each_other},
        {"graph-fault", fault_in_graph},
        {"stream-fault", fault_in_stream},
        {"collective", collective},
        {"event", event_never_comes},
        {"legacy", legacy},
        {"callback", callback},
        {"cost", cost},
    };
    void *memory = NULL;
    begin();
    runs_kernels = driver_runs_kernels();
    CUmodule module = load_ptx(PTX_HANGS);
    prepare = function_of(module, "prepare");
    finish = function_of(module, "finish");
    spin = function_of(module, "spin");
    all_reduce = function_of(module, "all_reduce");
    fault = function_of(module, "fault");
    CHECK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(memory, 0, 4096);
    flags = memory;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    for (size_t at = 0; at < sizeof WAYS / sizeof *WAYS; at++) {
        if (count > 1 && strcmp(words[1], WAYS[at].name) == 0) {
            WAYS[at].run();
            while (getchar() != EOF)
                ;
            return 0;
        }
    }
    fprintf(stderr, "usage: hangs WAY\n");
    return 2;
}
