/* Four threads at once, each with a stream, memory and 50 launches of its own; main prints in the
 * order of the threads. */
#include "program.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 50, COUNT = 1000 };

static CUfunction fill;

struct worker {
    pthread_t thread;
    uint32_t number;
    uint32_t out[COUNT];
};

static void *work(void *argument)
{
    struct worker *self = argument;
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CUcontext current = NULL;
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == NULL); /* every thread has its own stack of contexts */
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof self->out));
    CHECK(cuMemsetD32Async(memory, self->number, COUNT, stream));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t start = self->number * 1000 + round, count = COUNT;
        void *parameters[] = {&memory, &start, &count};
        launch(fill, 4, 64, stream, parameters);
        CHECK(cuMemcpyDtoHAsync(self->out, memory, sizeof self->out, stream));
        CHECK(cuStreamSynchronize(stream));
        EXPECT_KERNEL(self->out[0] == start && self->out[COUNT - 1] == start + COUNT - 1);
    }
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxSetCurrent(NULL));
    return NULL;
}

int main(void)
{
    begin();
    (void)driver_runs_kernels(); /* asked before the threads start */
    CUmodule module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    static struct worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        EXPECT(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(workers[i].thread, NULL) == 0);
        printf("thread %u: ", i);
        show_u32("last round", workers[i].out, COUNT);
    }
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
