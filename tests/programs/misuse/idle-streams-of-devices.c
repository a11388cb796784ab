// Streams that are no longer needed go to a cache, from which the next task takes one: a task of
// another device gets a stream of the first. The control's cache is one of each context.
// https://github.com/JuliaGPU/KernelAbstractions.jl/pull/294
// expect: exec-stream-context-mismatch
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs
#include "program.h"

enum { DEVICES = 2, MOST = 4 };

struct cache {
    CUstream idle[MOST];
    int count;
};

static struct cache caches[DEVICES];

static struct cache *cache_of(int which UNUSED)
{
#ifdef VIOLATE
    return &caches[0];
#else
    return &caches[which];
#endif
}

static void run(CUcontext of, int which, CUfunction function)
{
    struct cache *cache = cache_of(which);
    CUstream stream = NULL;
    CHECK(cuCtxSetCurrent(of));
    if (cache->count > 0)
        stream = cache->idle[--cache->count];
    else
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    CHECK(cuStreamSynchronize(stream));
    cache->idle[cache->count++] = stream;
}

int main(void)
{
    begin();
    CUdevice devices[DEVICES] = {device};
    CUcontext contexts[DEVICES] = {context};
    CUmodule modules[DEVICES];
    CUfunction functions[DEVICES];
    CHECK(cuDeviceGet(&devices[1], 1));
    CHECK(cuDevicePrimaryCtxRetain(&contexts[1], devices[1]));
    for (int i = 0; i < DEVICES; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        modules[i] = load_ptx(PTX_NOTHING);
        functions[i] = function_of(modules[i], "nothing");
    }
    for (int i = 0; i < DEVICES; i++)
        run(contexts[i], i, functions[i]);
    for (int i = 0; i < DEVICES; i++) {
        while (caches[i].count > 0)
            CHECK(cuStreamDestroy(caches[i].idle[--caches[i].count]));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuModuleUnload(modules[i]));
    }
    CHECK(cuDevicePrimaryCtxRelease(devices[1]));
    end();
    return success();
}
