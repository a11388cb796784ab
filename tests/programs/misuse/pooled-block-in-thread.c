// A second thread gets its memory from a pool, without a call that would give it a context, and
// launches a kernel on it. The control's thread makes the context current.
// https://github.com/cupy/cupy/issues/72
// expect: exec-null-stream-context
#include "program.h"

#include <pthread.h>

enum { VALUES = 1024 };

static CUdeviceptr pooled;
static CUfunction fill;

static CUdeviceptr take(void)
{
    CUdeviceptr block = pooled;
    pooled = 0;
    if (block == 0)
        CHECK(cuMemAlloc(&block, VALUES * sizeof(uint32_t)));
    return block;
}

static void *run(void *unused UNUSED)
{
#ifndef VIOLATE
    CHECK(cuCtxSetCurrent(context));
#endif
    CUdeviceptr block = take();
    uint32_t start = 0, count = VALUES;
    void *parameters[] = {&block, &start, &count};
    MISUSE(cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
    pooled = block;
    return NULL;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    run(NULL);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(pooled));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
