// Each thread prepares its input and waits for the whole device, and another thread captures its
// inference meanwhile: the wait breaks the capture. The control's wait is for a stream.
// https://github.com/NVIDIA/TensorRT/issues/2888
// expect: stream-capture-wait-on-captured
#include "program.h"

#include <pthread.h>

enum { SIZE = 4096 };

static CUdeviceptr input, output;
static CUstream preparing, inferring;
static pthread_barrier_t begun, prepared;

static void *prepare(void *unused UNUSED)
{
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemsetD8Async(input, 1, SIZE, preparing));
    pthread_barrier_wait(&begun);
#ifdef VIOLATE
    MISUSE(cuCtxSynchronize());
#else
    CHECK(cuStreamSynchronize(preparing));
#endif
    pthread_barrier_wait(&prepared);
    return NULL;
}

static void infer(void)
{
    CUgraph graph = NULL;
    CHECK(cuStreamBeginCapture(inferring, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD8Async(output, 0, SIZE, inferring));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&prepared);
    if (cuStreamEndCapture(inferring, &graph) == CUDA_SUCCESS)
        CHECK(cuGraphDestroy(graph));
}

int main(void)
{
    begin();
    pthread_t thread;
    CHECK(cuStreamCreate(&preparing, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&inferring, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&input, SIZE));
    CHECK(cuMemAlloc(&output, SIZE));
    EXPECT(pthread_barrier_init(&begun, NULL, 2) == 0);
    EXPECT(pthread_barrier_init(&prepared, NULL, 2) == 0);
    EXPECT(pthread_create(&thread, NULL, prepare, NULL) == 0);
    infer();
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuStreamSynchronize(preparing));
    CHECK(cuMemFree(output));
    CHECK(cuMemFree(input));
    CHECK(cuStreamDestroy(inferring));
    CHECK(cuStreamDestroy(preparing));
    end();
    return success();
}
