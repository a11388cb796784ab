// A buffer is deleted in the order of its stream, and its memory is given back once more when the
// last view of it is released. The control deletes by releasing.
// https://github.com/openxla/openxla-pjrt-plugin/pull/188
// expect: memory-double-free
#include "program.h"

struct buffer {
    CUdeviceptr memory;
    CUstream stream;
    int views;
};

static void release_view(struct buffer *buffer)
{
    if (--buffer->views == 0)
        MISUSE(cuMemFreeAsync(buffer->memory, buffer->stream));
}

static void delete_buffer(struct buffer *buffer)
{
#ifdef VIOLATE
    CHECK(cuMemFreeAsync(buffer->memory, buffer->stream));
#endif
    release_view(buffer);
}

int main(void)
{
    begin();
    struct buffer buffer = {.views = 1};
    CHECK(cuStreamCreate(&buffer.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&buffer.memory, 4096, buffer.stream));
    CHECK(cuMemsetD8Async(buffer.memory, 0, 4096, buffer.stream));
    buffer.views++;
    release_view(&buffer);
    delete_buffer(&buffer);
    CHECK(cuStreamSynchronize(buffer.stream));
    CHECK(cuStreamDestroy(buffer.stream));
    end();
    return success();
}
