// Buffers are made from slices and given to a kernel in a stream of the program at once, and some
// results are wrong, unless the program sleeps in between. The control copies in that stream.
// https://github.com/bheisler/RustaCUDA/issues/41
// expect: memory-pageable-h2d-unordered
#include "program.h"

enum { VALUES = 100000 };

struct buffer {
    CUdeviceptr memory;
};

static struct buffer from_slice(const uint32_t *slice, CUstream stream UNUSED)
{
    struct buffer buffer = {0};
    const size_t size = VALUES * sizeof *slice;
    CHECK(cuMemAlloc(&buffer.memory, size));
#ifdef VIOLATE
    CHECK(cuMemcpyHtoD(buffer.memory, slice, size));
#else
    CHECK(cuMemcpyHtoDAsync(buffer.memory, slice, size, stream));
#endif
    return buffer;
}

int main(void)
{
    begin();
    static uint32_t x[VALUES], y[VALUES], sums[VALUES];
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUstream stream = NULL;
    uint32_t count = VALUES;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct buffer buffers[] = {from_slice(x, stream), from_slice(y, stream),
                               from_slice(sums, stream)};
    void *parameters[] = {&buffers[0].memory, &buffers[1].memory, &buffers[2].memory, &count};
    CHECK(cuLaunchKernel(add, 14, 14, 1, 512, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(sums, buffers[2].memory, sizeof sums));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFree(buffers[i].memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
