/* The program's own contexts: created, pushed, popped, queried, limited, destroyed. */
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CUcontext one = NULL, two = NULL, popped = NULL, current = NULL;
    CHECK(cuCtxCreate(&one, NULL, CU_CTX_SCHED_YIELD, device));
    CHECK(cuCtxCreate(&two, NULL, CU_CTX_MAP_HOST, device));
    EXPECT(one != two);
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == two); /* creation pushes */
    CHECK(cuCtxPopCurrent(&popped));
    EXPECT(popped == two);
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == one);
    CHECK(cuCtxPushCurrent(two));
    CHECK(cuCtxPopCurrent(&popped));
    EXPECT(popped == two);
    printf("stack as expected\n");

    unsigned flags = 0, version = 0;
    CHECK(cuCtxGetFlags(&flags));
    show("schedule flags of the first", flags & CU_CTX_SCHED_MASK);
    CHECK(cuCtxGetApiVersion(one, &version));
    EXPECT(version > 0);
    unsigned long long id_one = 0, id_two = 0;
    CHECK(cuCtxGetId(one, &id_one));
    CHECK(cuCtxGetId(two, &id_two));
    EXPECT(id_one != id_two);
    CUdevice of_context = -1;
    CHECK(cuCtxGetDevice(&of_context));
    EXPECT(of_context == device);
    int least = -100, greatest = 100;
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    EXPECT(least >= greatest);
    printf("priorities %d to %d\n", least, greatest);

    size_t stack = 0, printf_fifo = 0;
    CHECK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    CHECK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    EXPECT(stack >= 4096);
    CHECK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20));
    CHECK(cuCtxGetLimit(&printf_fifo, CU_LIMIT_PRINTF_FIFO_SIZE));
    EXPECT(printf_fifo >= 2 << 20);
    CUfunc_cache config;
    CHECK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    CHECK(cuCtxGetCacheConfig(&config));
    show("cache config", config);
    CHECK(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
    CHECK(cuCtxGetFlags(&flags));
    show("schedule flags, changed", flags & CU_CTX_SCHED_MASK);
    CHECK(cuCtxResetPersistingL2Cache());
    CHECK(cuCtxSynchronize());

    CHECK(cuCtxSetCurrent(two));
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 1024));
    CHECK(cuMemsetD8(memory, 1, 1024));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuCtxDestroy(two));
    CHECK(cuCtxSetCurrent(one));
    CHECK(cuCtxDestroy(one)); /* its own current context: the stack is empty after it */
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == NULL);
    return success();
}
