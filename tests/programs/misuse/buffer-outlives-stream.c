// A stream is destroyed by hand at the end of a scope. The destructor of a buffer runs after that
// and waits for the stream. In the control, the stream has a destructor too.
// https://github.com/NVIDIA-Genomics-Research/GenomeWorks/issues/393
// expect: stream-use-after-destroy
// may-crash: SIGSEGV
#include "program.h"

struct buffer {
    CUdeviceptr memory;
    CUstream stream;
};

static void destroy_buffer(struct buffer *buffer)
{
    MISUSE(cuStreamSynchronize(buffer->stream));
    CHECK(cuMemFree(buffer->memory));
}

#ifndef VIOLATE
static void destroy_stream(CUstream *stream)
{
    CHECK(cuStreamDestroy(*stream));
}
#endif

static void align(void)
{
#ifdef VIOLATE
    CUstream stream = NULL;
#else
    __attribute__((cleanup(destroy_stream))) CUstream stream = NULL;
#endif
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    __attribute__((cleanup(destroy_buffer))) struct buffer buffer = {.stream = stream};
    CHECK(cuMemAlloc(&buffer.memory, 4096));
    CHECK(cuMemsetD8Async(buffer.memory, 0, 4096, stream));
    CHECK(cuStreamSynchronize(stream));
#ifdef VIOLATE
    CHECK(cuStreamDestroy(stream));
#endif
}

int main(void)
{
    begin();
    align();
    end();
    return success();
}
