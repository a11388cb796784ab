// A thread allocates memory without making the context current, which only the main thread did; the
// control's thread makes it current as well.
// expect: context-none-current
#include "program.h"

#include <pthread.h>

static void *work(void *unused)
{
    (void)unused;
    CUdeviceptr memory = 0;
#ifdef VIOLATE
    MISUSE(cuMemAlloc(&memory, 64));
#else
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, 64));
    CHECK(cuMemFree(memory));
#endif
    return NULL;
}

int main(void)
{
    begin();
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, work, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    end();
    return success();
}
