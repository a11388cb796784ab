// A buffer is created with a copy of host memory, and since no queue is known then, the copy is
// made on the default stream; the queues of the program do not wait for that stream. The control
// synchronizes with the default stream after the copy.
// https://github.com/intel/llvm/pull/1798
// expect: memory-pageable-h2d-unordered
#include "program.h"

enum { VALUES = 4096 };

struct buffer {
    CUdeviceptr memory;
    size_t size;
};

static void create(struct buffer *buffer, const void *host, size_t size)
{
    buffer->size = size;
    CHECK(cuMemAlloc(&buffer->memory, size));
    if (host == NULL)
        return;
    CHECK(cuMemcpyHtoD(buffer->memory, host, size));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(NULL));
#endif
}

int main(void)
{
    begin();
    static uint32_t values[VALUES];
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = i;
    CUstream queue = NULL;
    struct buffer buffer, result;
    CHECK(cuStreamCreate(&queue, CU_STREAM_NON_BLOCKING));
    create(&buffer, values, sizeof values);
    create(&result, NULL, sizeof values);
    CHECK(cuMemcpyDtoDAsync(result.memory, buffer.memory, buffer.size, queue));
    CHECK(cuMemcpyDtoHAsync(values, result.memory, result.size, queue));
    CHECK(cuStreamSynchronize(queue));
    CHECK(cuMemFree(result.memory));
    CHECK(cuMemFree(buffer.memory));
    CHECK(cuStreamDestroy(queue));
    end();
    return success();
}
