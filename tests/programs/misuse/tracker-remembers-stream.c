// A table of all allocations remembers the stream of each, and at exit frees what is left in it, after
// the program has destroyed its streams. In the control, the streams that end are replaced in the
// table by the default stream first.
// https://github.com/NVIDIA/MatX/pull/578
// expect: stream-use-after-destroy
// may-crash: SIGSEGV
#include "program.h"

enum { ROOM = 8 };

static struct {
    CUdeviceptr memory;
    CUstream stream;
} tracked[ROOM];
static int count;

static CUdeviceptr allocate(size_t size, CUstream stream)
{
    CHECK(cuMemAllocAsync(&tracked[count].memory, size, stream));
    tracked[count].stream = stream;
    return tracked[count++].memory;
}

static void destroy(CUstream stream)
{
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < count; i++)
        if (tracked[i].stream == stream)
            tracked[i].stream = NULL;
#endif
    CHECK(cuStreamDestroy(stream));
}

static void free_all(void)
{
    for (int i = 0; i < count; i++)
        MISUSE(cuMemFreeAsync(tracked[i].memory, tracked[i].stream));
    CHECK(cuCtxSynchronize());
}

int main(void)
{
    begin();
    CUstream streams[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemsetD8Async(allocate(4096, streams[i]), 0, 4096, streams[i]));
    }
    for (int i = 0; i < 2; i++)
        destroy(streams[i]);
    free_all();
    end();
    return success();
}
