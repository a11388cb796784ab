/* What a stream capture in progress forbids: a stream captures, then one call is made that has
 * nothing to do with it, by the thread that captures or by another.
 * Prints a table: the call; for each mode, the stream that captures (non-blocking, blocking) and the
 * thread of the call, its result and, if it is not 0, that of the end of the capture after "/". */
#include "program.h"

#include <pthread.h>

enum { SIZE = 4096 };

static CUstream capturing[2], other, legacy = CU_STREAM_LEGACY;
static CUevent event;
static CUdeviceptr memory;
static void *pinned;
static CUcontext context;
static unsigned char pageable[SIZE];

static CUresult stream_wait(void) { return cuStreamSynchronize(other); }
static CUresult legacy_wait(void) { return cuStreamSynchronize(legacy); }
static CUresult event_wait(void) { return cuEventSynchronize(event); }
static CUresult event_query(void) { return cuEventQuery(event); }
static CUresult stream_query(void) { return cuStreamQuery(other); }
static CUresult record_legacy(void) { return cuEventRecord(event, legacy); }
static CUresult record_other(void) { return cuEventRecord(event, other); }
static CUresult context_wait(void) { return cuCtxSynchronize(); }
static CUresult to_device(void) { return cuMemcpyHtoD(memory, pageable, SIZE); }
static CUresult to_device_async(void) { return cuMemcpyHtoDAsync(memory, pinned, SIZE, other); }
static CUresult to_host(void) { return cuMemcpyDtoH(pageable, memory, SIZE); }
static CUresult set(void) { return cuMemsetD8(memory, 1, SIZE); }
static CUresult allocate(void)
{
    CUdeviceptr made;
    CUresult result = cuMemAlloc(&made, SIZE);
    if (!result)
        cuMemFree(made);
    return result;
}
/* The waits again, by a thread that has exchanged its mode for "relaxed". */
static CUresult relaxed(CUresult (*call)(void))
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = call();
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    return result;
}
static CUresult relaxed_stream_wait(void) { return relaxed(stream_wait); }
static CUresult relaxed_legacy_wait(void) { return relaxed(legacy_wait); }
static CUresult relaxed_event_query(void) { return relaxed(event_query); }
static CUresult relaxed_context_wait(void) { return relaxed(context_wait); }
static CUresult relaxed_to_device(void) { return relaxed(to_device); }

static const struct {
    const char *name;
    CUresult (*call)(void);
} CALLS[] = {
    {"cuStreamSynchronize(other)", stream_wait},
    {"cuStreamSynchronize(legacy)", legacy_wait},
    {"cuEventSynchronize", event_wait},
    {"cuEventQuery", event_query},
    {"cuStreamQuery(other)", stream_query},
    {"cuEventRecord(legacy)", record_legacy},
    {"cuEventRecord(other)", record_other},
    {"cuCtxSynchronize", context_wait},
    {"cuMemcpyHtoD", to_device},
    {"cuMemcpyDtoH", to_host},
    {"cuMemcpyHtoDAsync(other)", to_device_async},
    {"cuMemsetD8", set},
    {"cuMemAlloc", allocate},
    {"relaxed cuStreamSynchronize(other)", relaxed_stream_wait},
    {"relaxed cuStreamSynchronize(legacy)", relaxed_legacy_wait},
    {"relaxed cuEventQuery", relaxed_event_query},
    {"relaxed cuCtxSynchronize", relaxed_context_wait},
    {"relaxed cuMemcpyHtoD", relaxed_to_device},
};
enum { CALL_COUNT = sizeof(CALLS) / sizeof(CALLS[0]) };

struct job {
    CUresult (*call)(void);
    CUresult result;
};

static void *run(void *argument)
{
    struct job *job = argument;
    CHECK(cuCtxSetCurrent(context));
    job->result = job->call();
    return NULL;
}

int main(void)
{
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&capturing[0], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&capturing[1], CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemHostAlloc(&pinned, SIZE, 0));
    printf("%-36s", "");
    for (int mode = 0; mode < 3; mode++)
        for (int blocking = 0; blocking < 2; blocking++)
            for (int thread = 0; thread < 2; thread++)
                printf(" %8.2s%s%s", mode == 0 ? "global" : mode == 1 ? "thread" : "relaxed",
                       blocking ? "-b" : "-n", thread ? "-o" : "-s");
    printf("\n");
    for (int at = 0; at < CALL_COUNT; at++) {
        printf("%-36s", CALLS[at].name);
        for (int mode = 0; mode < 3; mode++) {
            for (int blocking = 0; blocking < 2; blocking++) {
                for (int thread = 0; thread < 2; thread++) {
                    struct job job = {CALLS[at].call, 0};
                    CUgraph graph = NULL;
                    CHECK(cuStreamBeginCapture(capturing[blocking], (CUstreamCaptureMode)mode));
                    if (thread) {
                        pthread_t made;
                        pthread_create(&made, NULL, run, &job);
                        pthread_join(made, NULL);
                    } else {
                        run(&job);
                    }
                    CUresult ended = cuStreamEndCapture(capturing[blocking], &graph);
                    if (graph)
                        cuGraphDestroy(graph);
                    char text[24];
                    snprintf(text, sizeof text, ended ? "%d/%d" : "%d", job.result, ended);
                    printf(" %12s", text);
                    CHECK(cuCtxSynchronize());
                }
            }
        }
        printf("\n");
    }
    return 0;
}
