// Calls the driver below a number of frames, and times the call: `stack_cost FRAMES CALLS`. Each
// frame has an array of 100 to 200 bytes, as functions have in practice.
//
// Then, for comparison, what two other ways of taking a stack would do in each call: follow frame
// pointers (this file is compiled with them), and copy the stack up to the frames' start, at least
// 8 KiB.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_api.h"

enum { ROUNDS = 15 };

static long calls;
static char *bottom;
static volatile uint64_t sink;
static char copies[64 << 10];
static uint64_t hash;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_time(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void call_driver(void)
{
    CUcontext context;
    cuCtxGetCurrent(&context);
}

static void follow_frame_pointers(void)
{
    uint64_t *frame = __builtin_frame_address(0), state = 1;
    while ((char *)frame < bottom) {
        state = (state ^ frame[1]) * 0x9e3779b97f4a7c15;
        frame = (uint64_t *)frame[0];
    }
    hash = state;
}

static void copy_stack(void)
{
    char *top = __builtin_frame_address(0);
    size_t length = bottom - top < 8192 ? 8192 : bottom - top;
    memcpy(copies, top, length < sizeof copies ? length : sizeof copies);
}

static void measure(const char *name, void (*act)(void))
{
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (long call = 0; call < calls; call++)
            act();
        times[round] = (now() - start) / calls;
    }
    qsort(times, ROUNDS, sizeof times[0], by_time);
    printf("%s %.2f\n", name, times[ROUNDS / 2]);
}

__attribute__((noinline)) static void below(int frames)
{
    volatile char memory[100 + frames % 100];
    memory[0] = 1;
    if (frames > 1) {
        below(frames - 1);
    } else {
        measure("call_ns", call_driver);
        measure("frame_pointers_ns", follow_frame_pointers);
        measure("copy_ns", copy_stack);
        printf("stack_bytes %td\n", bottom - (char *)__builtin_frame_address(0));
    }
    sink += memory[0];
}

int main(int count, char **words)
{
    // What copying reads beyond a shallow stack.
    volatile char reserve[16384];
    reserve[0] = 1;
    bottom = __builtin_frame_address(0);
    calls = count > 2 ? atol(words[2]) : 10000;
    cuInit(0);
    below(count > 1 ? atoi(words[1]) : 1);
    return reserve[0] - 1;
}
