/* Copies to pinned memory, each complete because of another call, and calls in between that prove
 * nothing: the recording has the bytes with the first call that proves the copy complete. */
// null-driver: CUTAPE_NULL_SCHEDULE=lazy CUTAPE_NULL_DELAY=cuCtxSynchronize@1=200ms
#include "program.h"

#include <pthread.h>
#include <unistd.h>

enum { SIZE = 4096 };

static CUdeviceptr memory;
static CUstream stream, other;
static unsigned char *pinned;
static volatile int is_waiting;

static void copy(int value)
{
    CHECK(cuMemsetD8Async(memory, (unsigned char)value, SIZE, stream));
    CHECK(cuMemcpyDtoHAsync(pinned, memory, SIZE, stream));
}

/* The memory is used again at once, so that bytes that are taken too late are seen. */
static void is_complete(int value)
{
    EXPECT(pinned[0] == value && pinned[SIZE - 1] == value);
    memset(pinned, 0xee, SIZE);
}

static void *copy_meanwhile(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    while (!is_waiting)
        usleep(1000);
    usleep(50000);
    copy(1);
    return NULL;
}

/* An event that was recorded behind the copy, and then again, in another stream, by a graph or an
 * attribute of a launch. */
static void recorded_elsewhere(CUevent event)
{
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction fill = function_of(module, "fill");
    CUevent spare = NULL;
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphExec first = NULL, changed = NULL;
    CHECK(cuEventCreate(&spare, CU_EVENT_DISABLE_TIMING));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    CHECK(cuGraphInstantiate(&first, graph, 0));
    CHECK(cuGraphEventRecordNodeSetEvent(node, spare));
    CHECK(cuGraphInstantiate(&changed, graph, 0));
    CHECK(cuGraphExecEventRecordNodeSetEvent(changed, node, event));

    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    attribute.value.launchCompletionEvent.event = event;
    CUlaunchConfig config = configuration(1, 1, other, &attribute, 1);
    uint32_t start = 0, count = 1;
    CUdeviceptr elsewhere = 0;
    void *parameters[] = {&elsewhere, &start, &count};
    CHECK(cuMemAlloc(&elsewhere, sizeof start));

    for (int way = 0; way < 4; way++) {
        copy(10 + way);
        CHECK(cuEventRecord(event, stream));
        if (way < 2)
            CHECK(cuGraphLaunch(way == 0 ? first : changed, other));
        else
            CHECK(cuLaunchKernelEx(&config, fill, parameters, NULL));
        CHECK(cuEventSynchronize(event));
        CHECK(cuStreamSynchronize(stream));
        is_complete(10 + way);
    }
    CHECK(cuStreamSynchronize(other));
    CHECK(cuMemFree(elsewhere));
    CHECK(cuGraphExecDestroy(first));
    CHECK(cuGraphExecDestroy(changed));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuEventDestroy(spare));
    CHECK(cuModuleUnload(module));
}

int main(void)
{
    begin();
    CUdeviceptr small = 0;
    uint32_t word = 0;
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemAlloc(&small, sizeof word));
    CHECK(cuMemsetD32(small, 7, 1));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&pinned, SIZE, 0));

    /* A wait for the context that was entered before the copy was enqueued. */
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, copy_meanwhile, NULL) == 0);
    is_waiting = 1;
    CHECK(cuCtxSynchronize());
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuStreamSynchronize(stream));
    is_complete(1);

    /* An event that was recorded before the copy, and one whose handle was another's before. */
    CUevent event = NULL;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, stream));
    copy(2);
    CHECK(cuEventSynchronize(event));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventDestroy(event));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventQuery(event));
    CHECK(cuStreamSynchronize(other));
    CHECK(cuCtxSynchronize());
    is_complete(2);

    /* An event that was recorded behind the copy. */
    copy(3);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
    is_complete(3);

    /* A stream that has waited for such an event. */
    copy(4);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamWaitEvent(other, event, 0));
    CHECK(cuStreamSynchronize(other));
    is_complete(4);

    /* A copy that waits for the default stream, which a blocking stream takes part in. */
    CHECK(cuStreamDestroy(stream));
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    copy(5);
    CHECK(cuMemcpyDtoH(&word, small, sizeof word));
    is_complete(5);

    recorded_elsewhere(event);

    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuStreamDestroy(other));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(small));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
