// Each launch sets the function's limit of dynamic shared memory to what it needs itself. A small
// launch in another thread lowers the limit after a large one has raised it and before it launches.
// The control's launches only ever raise the limit, under a lock.
// https://github.com/deepseek-ai/DeepJIT/pull/15
// expect: launch-config-dynamic-smem-limit
#include "program.h"

#include <pthread.h>

enum { SMALL = 4, LARGE = 64 << 10 };

static CUfunction function;
static pthread_barrier_t raised, lowered;
#ifndef VIOLATE
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int highest;
#endif

static void set_limit(int bytes)
{
    const CUfunction_attribute limit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
#ifdef VIOLATE
    CHECK(cuFuncSetAttribute(function, limit, bytes));
#else
    EXPECT(pthread_mutex_lock(&lock) == 0);
    if (bytes > highest) {
        CHECK(cuFuncSetAttribute(function, limit, bytes));
        highest = bytes;
    }
    EXPECT(pthread_mutex_unlock(&lock) == 0);
#endif
}

static void start(int bytes)
{
    MISUSE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, (unsigned)bytes, NULL, NULL, NULL));
}

static void *launch_small(void *unused UNUSED)
{
    CHECK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&raised);
    set_limit(SMALL);
    pthread_barrier_wait(&lowered);
    return NULL;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    function = function_of(module, "nothing");
    EXPECT(pthread_barrier_init(&raised, NULL, 2) == 0);
    EXPECT(pthread_barrier_init(&lowered, NULL, 2) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, launch_small, NULL) == 0);
    set_limit(LARGE);
    pthread_barrier_wait(&raised);
    pthread_barrier_wait(&lowered);
    start(LARGE);
    EXPECT(pthread_join(thread, NULL) == 0);
    start(SMALL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
