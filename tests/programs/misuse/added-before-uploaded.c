// Two arrays are uploaded with synchronous copies, and a kernel in a stream that does not wait for
// the default stream adds them right away. The control's stream waits for the default stream.
// https://github.com/Rust-GPU/rust-cuda/issues/15
// expect: memory-pageable-h2d-unordered
#include "program.h"

enum { VALUES = 1 << 16 };

static CUdeviceptr from_slice(const uint32_t *values)
{
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, VALUES * sizeof *values));
    CHECK(cuMemcpyHtoD(memory, values, VALUES * sizeof *values));
    return memory;
}

int main(void)
{
    begin();
#ifdef VIOLATE
    const unsigned flags = CU_STREAM_NON_BLOCKING;
#else
    const unsigned flags = CU_STREAM_DEFAULT;
#endif
    static uint32_t values[VALUES];
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUstream stream = NULL;
    CUdeviceptr sum = 0;
    uint32_t count = VALUES;
    CHECK(cuStreamCreate(&stream, flags));
    CHECK(cuMemAlloc(&sum, sizeof values));
    CUdeviceptr left = from_slice(values), right = from_slice(values);
    void *parameters[] = {&left, &right, &sum, &count};
    launch(add, 16, 128, stream, parameters);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(right));
    CHECK(cuMemFree(left));
    CHECK(cuMemFree(sum));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
