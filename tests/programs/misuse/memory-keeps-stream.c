// Memory keeps the handle of the stream that it was allocated in and is freed in it, also when the
// object of the stream is gone. The control's memory knows whether the stream is alive.
// https://github.com/cupy/cupy/pull/5264
// expect: stream-use-after-destroy
// may-crash: SIGSEGV
#include "program.h"

struct stream {
    CUstream handle;
};

struct memory {
    CUdeviceptr address;
#ifdef VIOLATE
    CUstream stream;
#else
    const struct stream *stream;
#endif
};

static void allocate(struct memory *memory, size_t size, const struct stream *stream)
{
    CHECK(cuMemAllocAsync(&memory->address, size, stream->handle));
#ifdef VIOLATE
    memory->stream = stream->handle;
#else
    memory->stream = stream;
#endif
}

static void release(const struct memory *memory)
{
#ifdef VIOLATE
    MISUSE(cuMemFreeAsync(memory->address, memory->stream));
#else
    CHECK(cuMemFreeAsync(memory->address, memory->stream->handle));
#endif
}

int main(void)
{
    begin();
    struct stream stream = {NULL};
    struct memory memory;
    CHECK(cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING));
    allocate(&memory, 4096, &stream);
    CHECK(cuMemsetD8Async(memory.address, 0, 4096, stream.handle));
    CHECK(cuStreamSynchronize(stream.handle));
    CHECK(cuStreamDestroy(stream.handle));
    stream.handle = NULL;
    release(&memory);
    CHECK(cuCtxSynchronize());
    end();
    return success();
}
