// A host function frees the pinned copy of an upload, which the driver forbids there. The
// control's host function only marks it, and the program frees it.
// https://github.com/lupinemachines/lupine/pull/320
// expect: threading-host-function-calls-cuda
// replay-diverges: cuMemFreeHost
#include "program.h"

struct upload {
    void *staging;
    int done;
};

static void finished(void *data)
{
    struct upload *upload = data;
#ifdef VIOLATE
    MISUSE(cuMemFreeHost(upload->staging));
#endif
    upload->done = 1;
}

static void reap(struct upload *upload)
{
    EXPECT(upload->done);
    CHECK(cuMemFreeHost(upload->staging));
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr target = 0;
    struct upload uploads[4] = {0};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&target, 4096));
    for (int i = 0; i < 4; i++) {
        CHECK(cuMemAllocHost(&uploads[i].staging, 4096));
        memset(uploads[i].staging, i, 4096);
        CHECK(cuMemcpyHtoDAsync(target, uploads[i].staging, 4096, stream));
        CHECK(cuLaunchHostFunc(stream, finished, &uploads[i]));
    }
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < 4; i++)
        reap(&uploads[i]);
    CHECK(cuMemFree(target));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
