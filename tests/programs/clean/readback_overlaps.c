/* Waits of one thread that overlap the calls of another which enqueue, record and wait: they prove
 * nothing about work that came later. */
// null-driver: CUTAPE_NULL_SCHEDULE=lazy CUTAPE_NULL_DELAY=cuMemcpyDtoDAsync_v2@2=300ms
#include "program.h"

#include <pthread.h>
#include <unistd.h>

enum { SIZE = 4096 };

static CUdeviceptr memory, seen;
static CUstream first, second;
static CUevent event;
static unsigned char *pinned;
static volatile int is_open, is_waiting;

static void wait_until_open(void *unused)
{
    (void)unused;
    while (!is_open)
        usleep(1000);
}

static void *wait_for_context(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    usleep(100000);
    CHECK(cuCtxSynchronize());
    return NULL;
}

static void *wait_for_event(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    is_waiting = 1;
    CHECK(cuEventSynchronize(event));
    return NULL;
}

static void *wait_for_second(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    is_waiting = 1;
    CHECK(cuStreamSynchronize(second));
    return NULL;
}

static pthread_t started(void *(*function)(void *))
{
    pthread_t thread;
    is_open = is_waiting = 0;
    EXPECT(pthread_create(&thread, NULL, function, NULL) == 0);
    return thread;
}

/* The thread has entered its wait. */
static void await_wait(void)
{
    while (!is_waiting)
        usleep(1000);
    usleep(50000);
}

static void joined(pthread_t thread)
{
    is_open = 1;
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* What the device sees in pinned memory. */
static void show_seen(const char *label)
{
    unsigned char byte = 0;
    CHECK(cuMemcpyDtoDAsync(seen, (CUdeviceptr)(uintptr_t)pinned, SIZE, first));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuMemcpyDtoH(&byte, seen, 1));
    show(label, byte);
}

int main(void)
{
    begin();
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemAlloc(&seen, SIZE));
    CHECK(cuMemsetD8(memory, 7, SIZE));
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemHostAlloc((void **)&pinned, SIZE, 0));
    memset(pinned, 0, SIZE);
    CHECK(cuCtxSynchronize());
    show_seen("at first");

    /* The context is waited for while work that writes pinned memory is being enqueued. */
    pthread_t thread = started(wait_for_context);
    CHECK(cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)pinned, memory, SIZE, first));
    joined(thread);
    CHECK(cuStreamSynchronize(first));
    EXPECT(pinned[0] == 7);
    memset(pinned, 0, SIZE);
    show_seen("consumed");

    /* An event is recorded again, behind a copy, while its first record is waited for. */
    is_open = 0;
    CHECK(cuLaunchHostFunc(first, wait_until_open, NULL));
    CHECK(cuEventRecord(event, first));
    thread = started(wait_for_event);
    await_wait();
    CHECK(cuMemcpyDtoHAsync(pinned, memory, SIZE, second));
    CHECK(cuEventRecord(event, second));
    joined(thread);
    CHECK(cuStreamSynchronize(second));
    EXPECT(pinned[0] == 7);
    memset(pinned, 0, SIZE);

    /* A stream waits for an event behind a copy, while its earlier work is waited for. */
    is_open = 0;
    CHECK(cuLaunchHostFunc(second, wait_until_open, NULL));
    thread = started(wait_for_second);
    await_wait();
    CHECK(cuMemcpyDtoHAsync(pinned, memory, SIZE, first));
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
    joined(thread);
    CHECK(cuStreamSynchronize(first));
    EXPECT(pinned[0] == 7);

    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(first));
    CHECK(cuStreamDestroy(second));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(seen));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
