// A helper pushes the context and returns early where there is nothing to do; the control pops on
// every way out.
// https://github.com/eyalroz/cuda-api-wrappers/issues/317
// expect: context-unbalanced
#include "program.h"

static void fill(CUdeviceptr memory, size_t bytes)
{
    CHECK(cuCtxPushCurrent(context));
    if (bytes == 0) {
#ifndef VIOLATE
        CHECK(cuCtxPopCurrent(NULL));
#endif
        return;
    }
    CHECK(cuMemsetD8(memory, 1, bytes));
    CHECK(cuCtxPopCurrent(NULL));
}

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    for (size_t step = 0; step < 20; step++)
        fill(memory, step % 2 * 4096);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    end();
    return success();
}
