/* The program knows that the device has written pinned memory, from what proves it in no call, or
 * only together with other work: a host function, a value that it polls, an event that a graph or a
 * context records, a context's end. What it writes there afterwards is what the device reads next. */
// not-played: it changes what the device has written before its next call, and the recording has only that
#include "program.h"

#include <stdatomic.h>

enum { COUNT = 16, SIZE = COUNT * 4 };

static CUdeviceptr sevens, target;
static CUstream stream, blocking;
static uint32_t *pinned;
static uint32_t *flag;
static CUevent event;
static atomic_int is_told;

static CUdeviceptr address(void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static void tell(void *unused)
{
    (void)unused;
    is_told = 1;
}

/* Enqueues a copy of sevens to pinned memory. */
static void copy_sevens(CUstream in)
{
    memset(pinned, 0, SIZE);
    CHECK(cuMemcpyDtoHAsync(pinned, sevens, SIZE, in));
}

static void is_copied(void)
{
    EXPECT(((volatile uint32_t *)pinned)[0] == 7 && pinned[COUNT - 1] == 7);
}

/* Changes one word of them, which the device reads: in a stream, or in the default stream. */
static void change(const char *label, uint32_t value, CUstream in)
{
    uint32_t read[COUNT] = {0};
    is_copied();
    pinned[0] = value;
    if (in != NULL) {
        CHECK(cuMemcpyHtoDAsync(target, pinned, SIZE, in));
        CHECK(cuStreamSynchronize(in));
    } else {
        CHECK(cuMemcpyHtoD(target, pinned, SIZE));
    }
    CHECK(cuMemcpyDtoH(read, target, SIZE));
    EXPECT(read[0] == value && read[1] == 7);
    show_u32(label, read, COUNT);
}

static void a_host_function(void)
{
    for (uint32_t round = 0; round < 3; round++) {
        is_told = 0;
        copy_sevens(stream);
        CHECK(cuLaunchHostFunc(stream, tell, NULL));
        while (!is_told)
            usleep(200);
        change("host function", 5 + round, round == 1 ? NULL : stream);
    }
}

static void a_polled_value(void)
{
    for (uint32_t round = 0; round < 2; round++) {
        *(volatile uint32_t *)flag = 0;
        memset(pinned, 0, SIZE);
        CHECK(cuMemsetD32Async(address(pinned), 7, COUNT, stream));
        CHECK(cuStreamWriteValue32(stream, address(flag), 1, 0));
        while (*(volatile uint32_t *)flag == 0)
            usleep(200);
        change("polled value", 8 + round, round == 1 ? NULL : stream);
    }
}

static void an_event_of_the_context(void)
{
    copy_sevens(stream);
    if (!SUPPORTED(cuCtxRecordEvent(context, event)))
        CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
    change("event of the context", 10, NULL);
}

static void an_event_of_a_graph(void)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (uint32_t round = 0; round < 2; round++) {
        copy_sevens(stream);
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuEventSynchronize(event));
        change("event of a graph", 11 + round, round == 1 ? NULL : stream);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

/* The default stream's work comes after that of a blocking stream. */
static void other_work_of_the_default_stream(void)
{
    copy_sevens(blocking);
    CHECK(cuMemsetD32Async(target, 1, COUNT, NULL));
    CHECK(cuStreamSynchronize(NULL));
    change("work of the default stream", 13, NULL);
}

/* What is copied to the host without a stream is there. */
static void a_synchronous_copy(void)
{
    memset(pinned, 0, SIZE);
    CHECK(cuMemcpy(address(pinned), sevens, SIZE));
    change("copy without a stream", 14, NULL);
    CUDA_MEMCPY2D rows = {0};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = sevens;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = pinned;
    rows.WidthInBytes = SIZE;
    rows.Height = 1;
    CHECK(cuMemcpy2D(&rows));
    change("rows without a stream", 15, NULL);
}

/* A copy of another context reads the memory; a wait for the current one proves nothing of it. */
static void a_wait_for_another_context(void)
{
    CUcontext second = NULL;
    CUdeviceptr there = 0;
    CUstream in = NULL;
    uint32_t read = 0;
    CHECK(cuCtxCreate_v2(&second, 0, device));
    CHECK(cuMemAlloc(&there, SIZE));
    CHECK(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
    pinned[0] = 17;
    is_told = 0;
    CHECK(cuMemcpyHtoDAsync(there, pinned, SIZE, in));
    CHECK(cuLaunchHostFunc(in, tell, NULL));
    while (!is_told)
        usleep(200);
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    pinned[0] = 18;
    CHECK(cuMemcpyHtoD(target, pinned, SIZE));
    CHECK(cuCtxSetCurrent(second));
    CHECK(cuStreamSynchronize(in));
    CHECK(cuMemcpyDtoH(&read, there, sizeof read));
    EXPECT(read == 17);
    show("in another context", read);
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(context));
}

/* Nothing waits for the copy; its context ends, and the memory is registered in another one. */
static void the_end_of_a_context(void)
{
    static uint32_t memory[4096 / 4] __attribute__((aligned(4096)));
    CUcontext first = NULL, second = NULL;
    CUdeviceptr source = 0;
    CUstream in = NULL;
    uint32_t read = 0;
    CHECK(cuCtxCreate_v2(&first, 0, device));
    CHECK(cuMemHostRegister(memory, sizeof memory, 0));
    CHECK(cuMemAlloc(&source, SIZE));
    CHECK(cuMemsetD32(source, 7, COUNT));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemcpyDtoHAsync(memory, source, SIZE, in));
    CHECK(cuCtxDestroy(first));
    CHECK(cuCtxCreate_v2(&second, 0, device));
    CHECK(cuMemHostRegister(memory, sizeof memory, 0));
    CHECK(cuMemAlloc(&source, SIZE));
    memory[0] = 16;
    CHECK(cuMemcpyHtoD(source, memory, SIZE));
    CHECK(cuMemcpyDtoH(&read, source, sizeof read));
    EXPECT(read == 16);
    show("another context", read);
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(context));
}

int main(void)
{
    begin();
    CHECK(cuMemAlloc(&sevens, SIZE));
    CHECK(cuMemAlloc(&target, SIZE));
    CHECK(cuMemsetD32(sevens, 7, COUNT));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemHostAlloc((void **)&pinned, 4096, 0));
    CHECK(cuMemHostAlloc((void **)&flag, 4096, 0));
    CHECK(cuCtxSynchronize());

    a_host_function();
    a_polled_value();
    an_event_of_the_context();
    an_event_of_a_graph();
    other_work_of_the_default_stream();
    a_synchronous_copy();
    a_wait_for_another_context();
    the_end_of_a_context();

    CHECK(cuMemFreeHost(flag));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(blocking));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(target));
    CHECK(cuMemFree(sevens));
    end();
    return success();
}
