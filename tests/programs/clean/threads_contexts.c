/* As PyCUDA's threads do: each has a context of its own, which it pushes and pops around every use,
 * and gives up with cuCtxDetach. All of them run at once. */
// may: errors-deprecated-api
#include <pthread.h>

#include "program.h"

enum { THREADS = 8, COUNT = 512 };

static void *work(void *number)
{
    uint32_t values[COUNT];
    int ordinal = 0;
    CUdevice own = 0;
    CUcontext context = NULL, popped = NULL;
    CHECK(cuDeviceGet(&own, ordinal));
    CHECK(cuCtxCreate(&context, NULL, 0, own));
    CUdeviceptr out = 0;
    CHECK(cuMemAlloc(&out, sizeof values));
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    uint32_t first = *(uint32_t *)number, count = COUNT;
    void *parameters[] = {&out, &first, &count};
    CHECK(cuMemsetD32(out, first, COUNT));
    launch(fill, 1, COUNT, NULL, parameters);
    CHECK(cuMemcpyDtoH(values, out, sizeof values));
    EXPECT(values[0] == first);
    CHECK(cuCtxPopCurrent(&popped));
    EXPECT(popped == context);
    /* the destructors */
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuMemFree(out));
    CHECK(cuCtxPopCurrent(&popped));
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuModuleUnload(module));
    CHECK(cuCtxPopCurrent(&popped));
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuCtxDetach(context));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    CHECK(cuInit(0));
    for (uint32_t at = 0; at < THREADS; at++) {
        numbers[at] = at * 1000;
        EXPECT(pthread_create(&threads[at], NULL, work, &numbers[at]) == 0);
    }
    for (int at = 0; at < THREADS; at++)
        EXPECT(pthread_join(threads[at], NULL) == 0);
    return success();
}
