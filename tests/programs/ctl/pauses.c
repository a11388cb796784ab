/* Work in several threads while recording is stopped and started, as the first argument says. The
 * calls that a program makes do not depend on that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include "program.h"

enum { THREADS = 8, ROUNDS = 300, COUNT = 256 };

static int (*start_recording)(void);
static int (*stop_recording)(void);
static void (*mark_recording)(const char *);
static CUfunction fill;
static volatile int working;

/* The recorder's functions; NULL without one. */
static void find_recorder(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(library != NULL);
    start_recording = (int (*)(void))dlsym(library, "cutape_start");
    stop_recording = (int (*)(void))dlsym(library, "cutape_stop");
    mark_recording = (void (*)(const char *))dlsym(library, "cutape_mark");
}

/* One round of work: filled by a kernel, read back, checked. */
static void round_of_work(CUstream stream, CUdeviceptr memory, uint32_t start)
{
    static _Thread_local uint32_t out[COUNT];
    uint32_t count = COUNT;
    void *parameters[] = {&memory, &start, &count};
    CHECK(cuMemsetD32Async(memory, start, COUNT, stream));
    launch(fill, 4, 64, stream, parameters);
    CHECK(cuMemcpyDtoHAsync(out, memory, sizeof out, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT_KERNEL(out[0] == start && out[COUNT - 1] == start + COUNT - 1);
}

static void *work(void *argument)
{
    uint32_t number = (uint32_t)(uintptr_t)argument;
    CUstream stream = NULL, second = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, COUNT * sizeof(uint32_t)));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        round_of_work(stream, memory, number * 1000 + i);
        CHECK(cuMemsetD32Async(memory, 0, COUNT, stream));
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(second, event, 0));
        CHECK(cuMemsetD32Async(memory, i, COUNT, second));
        CHECK(cuStreamSynchronize(second));
        if (i % 10 == 0) {
            CUdeviceptr short_lived = 0;
            CHECK(cuMemAlloc(&short_lived, 4096));
            round_of_work(second, short_lived, i);
            CHECK(cuMemFree(short_lived));
        }
        /* A call that fails is recorded, paused or not. */
        if (i % 50 == 0)
            CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(0, 1, COUNT, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxSetCurrent(NULL));
    return NULL;
}

static void *toggle(void *argument)
{
    unsigned long *cycles = argument;
    while (working) {
        sched_yield();
        if (stop_recording != NULL && stop_recording()) {
            sched_yield();
            EXPECT(start_recording() == 1);
            ++*cycles;
        }
    }
    return NULL;
}

/* Threads at work; while they are, another one stops and starts recording. */
static void threads(int toggles)
{
    pthread_t workers[THREADS], toggler;
    unsigned long cycles = 0;
    working = 1;
    if (toggles)
        EXPECT(pthread_create(&toggler, NULL, toggle, &cycles) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(workers[i], NULL) == 0);
    working = 0;
    if (toggles)
        EXPECT(pthread_join(toggler, NULL) == 0);
    fprintf(stderr, "cycles: %lu\n", cycles);
}

/* Rounds of work as lines of the standard input say: a number of rounds, `mark` for a mark, `free`
 * for the memory, `wrong` for a launch that uses it all the same. */
static void commands(void)
{
    char line[32];
    CUdeviceptr memory = 0;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, COUNT * sizeof(uint32_t)));
    puts("ready");
    fflush(stdout);
    int lives = 1;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "mark\n") == 0) {
            if (mark_recording != NULL)
                mark_recording("here");
        } else if (strcmp(line, "free\n") == 0) {
            CHECK(cuMemFree(memory));
            lives = 0;
        } else if (strcmp(line, "wrong\n") == 0) {
            uint32_t start = 7, count = COUNT;
            void *parameters[] = {&memory, &start, &count};
            MISUSE(cuLaunchKernel(fill, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
            MISUSE(cuStreamSynchronize(stream));
        } else {
            for (int i = atoi(line); i > 0; i--)
                round_of_work(stream, memory, (uint32_t)i);
        }
        puts("done");
        fflush(stdout);
    }
    if (lives)
        CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    begin();
    (void)driver_runs_kernels();
    CUmodule module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    find_recorder();
    if (strcmp(argv[1], "commands") == 0)
        commands();
    else
        threads(strcmp(argv[1], "toggled") == 0);
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
