// A worker resets the device to clean up after itself, while the main thread has memory in the same
// primary context; the control frees its own memory. Nobody looks at the results.
// https://github.com/NVIDIA/numba-cuda/issues/644
// expect: context-primary-reset-shared
#include "program.h"

#include <pthread.h>

static void *work(void *unused UNUSED)
{
    CUdeviceptr scratch = 0;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&scratch, 4096));
    CHECK(cuMemsetD8(scratch, 1, 4096));
    CHECK(cuCtxSynchronize());
#ifdef VIOLATE
    CHECK(cuDevicePrimaryCtxReset(device));
#else
    CHECK(cuMemFree(scratch));
#endif
    return NULL;
}

int main(void)
{
    begin();
    CUdeviceptr result = 0, more = 0;
    pthread_t worker;
    CHECK(cuMemAlloc(&result, 4096));
    EXPECT(pthread_create(&worker, NULL, work, NULL) == 0);
    EXPECT(pthread_join(worker, NULL) == 0);
    MISUSE(cuMemAlloc(&more, 4096));
    MISUSE(cuMemsetD8(result, 2, 4096));
    MISUSE(cuMemFree(result));
    if (more)
        MISUSE(cuMemFree(more));
    end();
    return success();
}
