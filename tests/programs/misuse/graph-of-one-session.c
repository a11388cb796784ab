// Two threads run one inference session, which launches its graph; the driver does not lock
// graphs. The control's session has a lock.
// https://github.com/microsoft/onnxruntime/issues/18509
// expect: threading-graph-concurrent-use
// needs: launches that overlap; the null driver delays them
// null-driver: CUTAPE_NULL_DELAY=cuGraphLaunch@*=20ms
#include "program.h"

#include <pthread.h>

static CUgraphExec executable;
static pthread_barrier_t both;
#ifndef VIOLATE
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#endif

static void *run(void *stream)
{
    CHECK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&both);
#ifndef VIOLATE
    EXPECT(pthread_mutex_lock(&lock) == 0);
#endif
    CHECK(cuGraphLaunch(executable, stream));
#ifndef VIOLATE
    EXPECT(pthread_mutex_unlock(&lock) == 0);
#endif
    CHECK(cuStreamSynchronize(stream));
    return NULL;
}

int main(void)
{
    begin();
    CUstream streams[2];
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    pthread_t threads[2];
    CHECK(cuMemAlloc(&memory, 4096));
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD8Async(memory, 1, 4096, streams[0]));
    CHECK(cuStreamEndCapture(streams[0], &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    EXPECT(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, run, streams[i]) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(memory));
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamDestroy(streams[i]));
    end();
    return success();
}
