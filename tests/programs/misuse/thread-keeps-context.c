// A thread of a pool keeps the context of a queue current after its owner has destroyed it, and
// runs its next task there; the control's task sets the context that it needs.
// https://github.com/intel/llvm/issues/4171
// expect: context-use-after-destroy
#include "program.h"

#include <pthread.h>

static pthread_barrier_t step;
static CUcontext queue, next;

static void *work(void *unused UNUSED)
{
    CUdeviceptr memory = 0;
    CHECK(cuCtxSetCurrent(queue));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemFree(memory));
    pthread_barrier_wait(&step); /* the first task is done */
    pthread_barrier_wait(&step); /* its context is destroyed */
#ifndef VIOLATE
    CHECK(cuCtxSetCurrent(next));
#endif
    if (cuMemAlloc(&memory, 4096) == CUDA_SUCCESS)
        CHECK(cuMemFree(memory));
    return NULL;
}

int main(void)
{
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate(&queue, NULL, 0, device));
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuCtxCreate(&next, NULL, 0, device));
    pthread_t thread;
    EXPECT(pthread_barrier_init(&step, NULL, 2) == 0);
    EXPECT(pthread_create(&thread, NULL, work, NULL) == 0);
    pthread_barrier_wait(&step);
    CHECK(cuCtxDestroy(queue));
    pthread_barrier_wait(&step);
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuCtxDestroy(next));
    return success();
}
