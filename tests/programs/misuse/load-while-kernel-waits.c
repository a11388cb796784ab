// A kernel waits for a copy that the program makes later, and the program loads a library before
// that. The load waits for the kernel, and a watchdog ends the process. The control loads all
// kernels at once.
// https://github.com/meta-pytorch/torchcomms/pull/2334
// expect: library-load-behind-running-kernel
// needs: a load that does not return; the null driver delays it
// replay-skips: cuLibraryLoadData
// null-driver: CUTAPE_NULL_DELAY=cuLibraryLoadData@2=2s
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>

static CUfunction kernel_of(CUlibrary library, const char *name)
{
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    CHECK(cuLibraryGetKernel(&kernel, library, name));
    CHECK(cuKernelGetFunction(&function, kernel));
    return function;
}

#ifdef VIOLATE
static atomic_int loads;

static void *watch(void *unused UNUSED)
{
    while (!atomic_load(&loads))
        usleep(1000);
    usleep(50000);
    puts("EXIT-SUCCESS");
    _exit(0);
}
#endif

int main(void)
{
    begin();
    CUlibrary library = NULL;
    CUstream busy = NULL, other = NULL;
    CUdeviceptr flag = 0;
    uint32_t start = 0, count = 1;
    CHECK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&flag, 4));
    CHECK(cuLibraryLoadData(&library, PTX_THREE, NULL, NULL, 0, NULL, NULL, 0));
    CUfunction persistent = kernel_of(library, "fill");
    void *parameters[] = {&flag, &start, &count};
#ifdef VIOLATE
    pthread_t watchdog;
    CUlibrary second = NULL;
    launch(persistent, 1, 1, busy, parameters);
    EXPECT(pthread_create(&watchdog, NULL, watch, NULL) == 0);
    atomic_store(&loads, 1);
    CHECK(cuLibraryLoadData(&second, PTX_NOTHING, NULL, NULL, 0, NULL, NULL, 0));
    launch(kernel_of(second, "nothing"), 1, 1, other, NULL);
    EXPECT(pthread_join(watchdog, NULL) == 0);
    return 1;
#else
    launch(persistent, 1, 1, busy, parameters);
    CHECK(cuStreamSynchronize(busy));
    CHECK(cuStreamSynchronize(other));
    CHECK(cuLibraryUnload(library));
    CHECK(cuMemFree(flag));
    CHECK(cuStreamDestroy(other));
    CHECK(cuStreamDestroy(busy));
    end();
    return success();
#endif
}
