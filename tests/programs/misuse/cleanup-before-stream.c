// The clean-up function of an operation frees its buffers while the operation is still in the
// stream; the control's waits for the stream first.
// https://github.com/zama-ai/concrete-core/pull/337
// expect: memory-free-pending-work
#include "program.h"

struct buffers {
    CUdeviceptr input, output;
};

static void extract(struct buffers *buffers, CUfunction add, CUstream stream)
{
    uint32_t count = 1 << 14;
    CHECK(cuMemAlloc(&buffers->input, 4 << 14));
    CHECK(cuMemAlloc(&buffers->output, 4 << 14));
    CHECK(cuMemsetD32Async(buffers->input, 1, count, stream));
    void *parameters[] = {&buffers->input, &buffers->input, &buffers->output, &count};
    launch(add, 64, 256, stream, parameters);
}

static void cleanup(struct buffers *buffers, CUstream stream UNUSED)
{
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuMemFree(buffers->input));
    CHECK(cuMemFree(buffers->output));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUstream stream = NULL;
    struct buffers buffers = {0};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    extract(&buffers, add, stream);
    cleanup(&buffers, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
