/* A million calls or so of four threads on twelve streams, in random order: half launches of six
 * kernels in many shapes, the rest copies, memsets, events, waits, allocations.
 *   mixed_calls CALLS_OF_A_THREAD */
#include "program.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, STREAMS = 12, KERNELS = 6 };
static CUcontext context;
static CUstream streams[STREAMS];
static CUfunction kernels[KERNELS];
static CUevent events[THREADS];
static long calls;

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry k0(.param .u64 p0) { ret; }\n.visible .entry k1(.param .u64 p0) { ret; }\n"
    ".visible .entry k2(.param .u64 p0) { ret; }\n.visible .entry k3(.param .u64 p0) { ret; }\n"
    ".visible .entry k4(.param .u64 p0) { ret; }\n.visible .entry k5(.param .u64 p0) { ret; }\n";

static void *work(void *argument)
{
    uint64_t state = 0x9e3779b97f4a7c15 * ((long)argument + 1);
    CHECK(cuCtxSetCurrent(context));
    CUdeviceptr memory, more = 0;
    CHECK(cuMemAlloc(&memory, 1 << 20));
    char host[64] = {0};
    for (long call = 0; call < calls; call++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        CUstream stream = streams[(state >> 8) % STREAMS];
        CUdeviceptr at = memory + (state >> 20) % 4096 * 64;
        void *parameters[] = {&at};
        switch (state % 16) {
        case 0: CHECK(cuMemcpyHtoDAsync(at, host, 64, stream)); break;
        case 1: CHECK(cuMemcpyDtoHAsync(host, at, 64, stream)); break;
        case 2: CHECK(cuMemsetD8Async(at, 1, 64, stream)); break;
        case 3: CHECK(cuEventRecord(events[(long)argument], stream)); break;
        case 4: CHECK(cuStreamWaitEvent(stream, events[(long)argument], 0)); break;
        case 5: CHECK(cuStreamSynchronize(stream)); break;
        case 6:
            if (more)
                CHECK(cuMemFree(more));
            CHECK(cuMemAlloc(&more, 4096 << (state >> 32) % 8));
            call++;
            break;
        case 7: { CUdevice now; CHECK(cuCtxGetDevice(&now)); break; }
        default:
            CHECK(cuLaunchKernel(kernels[(state >> 40) % KERNELS], 1 + (state >> 44) % 16, 1, 1,
                                 32 << (state >> 50) % 4, 1, 1, 0, stream, parameters, NULL));
        }
    }
    if (more)
        CHECK(cuMemFree(more));
    CHECK(cuMemFree(memory));
    return NULL;
}

int main(int count, char **words)
{
    calls = count == 2 ? atol(words[1]) : 1000;
    begin();
    CHECK(cuCtxGetCurrent(&context));
    CUmodule module;
    CHECK(cuModuleLoadData(&module, ptx));
    for (int k = 0; k < KERNELS; k++) {
        char name[] = {'k', '0' + k, 0};
        CHECK(cuModuleGetFunction(&kernels[k], module, name));
    }
    for (int s = 0; s < STREAMS; s++)
        CHECK(cuStreamCreate(&streams[s], 1));
    for (int t = 0; t < THREADS; t++)
        CHECK(cuEventCreate(&events[t], 0));
    pthread_t threads[THREADS];
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)t);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    CHECK(cuModuleUnload(module));
    for (int s = 0; s < STREAMS; s++)
        CHECK(cuStreamDestroy(streams[s]));
    for (int t = 0; t < THREADS; t++)
        CHECK(cuEventDestroy(events[t]));
    end();
    return 0;
}
