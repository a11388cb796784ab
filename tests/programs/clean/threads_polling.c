/* A thread that launches, and one that polls for the end of the work. */
#include "program.h"

#include <pthread.h>

enum { ROUNDS = 20, LAUNCHES = 50, COUNT = 1 << 16 };

static CUfunction fill;
static CUstream stream;
static CUevent event;
static CUdeviceptr memory;
static pthread_barrier_t barrier;

static void *poll(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier); /* the work is enqueued */
        CUresult answer;
        while ((answer = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
            ;
        CHECK(answer);
        while ((answer = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
            ;
        CHECK(answer);
        pthread_barrier_wait(&barrier); /* it is done */
    }
    return NULL;
}

int main(void)
{
    begin();
    (void)driver_runs_kernels(); /* asked before the other thread starts */
    CUmodule module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, COUNT * sizeof(uint32_t)));
    CHECK(cuMemsetD32Async(memory, 0, COUNT, stream));
    EXPECT(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t poller;
    EXPECT(pthread_create(&poller, NULL, poll, NULL) == 0);
    uint64_t sum = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t start = round, count = COUNT, last = 0;
        void *parameters[] = {&memory, &start, &count};
        for (int i = 0; i < LAUNCHES; i++)
            launch(fill, COUNT / 256, 256, stream, parameters);
        CHECK(cuEventRecord(event, stream));
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        CHECK(cuMemcpyDtoH(&last, memory + (COUNT - 1) * sizeof last, sizeof last));
        EXPECT_KERNEL(last == start + COUNT - 1);
        sum += last;
    }
    EXPECT(pthread_join(poller, NULL) == 0);
    show("sum", sum);
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
