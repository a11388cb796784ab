// replay-skips: cuCtxGetCurrent
/* Calls at the end of threads and of the process: from destructors of thread-local values, of
 * values of keys made before cuInit, and from exit handlers. The thread's context is still current.
 * In exit handlers registered before cuInit, the driver refuses every call. */
#include "program.h"

#include <pthread.h>

/* Registers a destructor for the calling thread, as compilers of C++ do for `thread_local`. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *argument, void *object);
extern void *__dso_handle;

static pthread_key_t key;

static void use_context(const char *where)
{
    CUcontext current = NULL;
    CUdeviceptr memory = 0;
    uint32_t value = 0;
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == context);
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemsetD32(memory, 7, 1));
    CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
    CHECK(cuMemFree(memory));
    printf("%s: %u\n", where, value);
}

static void at_thread_local_end(void *where)
{
    use_context(where);
}

static void at_key_end(void *where)
{
    use_context(where);
}

static void behind_the_driver(void)
{
    CUcontext current = NULL;
    EXPECT(cuCtxGetCurrent(&current) == CUDA_ERROR_DEINITIALIZED);
    puts("exit handler from before cuInit: refused");
    (void)success();
}

static void at_process_end(void)
{
    use_context("exit handler");
    end();
}

static void *work(void *where)
{
    /* registered before the first call, so it runs after destructors that the driver registers */
    EXPECT(__cxa_thread_atexit_impl(at_thread_local_end, where, &__dso_handle) == 0);
    EXPECT(pthread_setspecific(key, "value of a key") == 0);
    CHECK(cuCtxSetCurrent(context));
    return NULL;
}

int main(void)
{
    static char in_main[] = "thread-local value of main", in_thread[] = "of another thread";
    EXPECT(__cxa_thread_atexit_impl(at_thread_local_end, in_main, &__dso_handle) == 0);
    EXPECT(pthread_key_create(&key, at_key_end) == 0);
    EXPECT(atexit(behind_the_driver) == 0);
    begin();
    EXPECT(atexit(at_process_end) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, work, in_thread) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    return 0;
}
