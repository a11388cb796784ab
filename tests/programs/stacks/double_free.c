// Frees memory twice, in functions that a stack names. Functions that return before their caller
// is done are not tail calls, so each has a frame.
#include "program.h"

static volatile int sink;

static inline __attribute__((always_inline)) void free_inlined(CUdeviceptr pointer)
{
    sink = cuMemFree(pointer); // line: inlined
}

__attribute__((noinline)) static void free_first(CUdeviceptr pointer)
{
    sink = cuMemFree(pointer); // line: first
}

// With an array of a size that is known at run time, the frame is found by rbp.
__attribute__((noinline)) static void step(CUdeviceptr pointer, int count)
{
    volatile char memory[count];
    memory[count - 1] = 1;
    free_inlined(pointer); // line: step
    sink += memory[count - 1];
}

__attribute__((noinline)) static void train(CUdeviceptr pointer)
{
    free_first(pointer);
    step(pointer, 100 + (int)sink);
    sink++;
}

int main(void)
{
    begin();
    CUdeviceptr pointer;
    CHECK(cuMemAlloc(&pointer, 64));
    train(pointer);
    end();
    return success();
}
