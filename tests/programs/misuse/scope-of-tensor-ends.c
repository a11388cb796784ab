// The tensors of a program are freed where their scope ends, while kernels in streams still use
// them. The control waits for the stream first.
// https://github.com/roastduck/FreeTensor/pull/566
// expect: memory-free-pending-work
#include "program.h"

enum { STREAMS = 2, VALUES = 1 << 16 };

struct tensor {
    CUdeviceptr memory;
    CUstream stream;
};

static void end_tensor(struct tensor *tensor)
{
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(tensor->stream));
#endif
    CHECK(cuMemFree(tensor->memory));
}

static void run(CUfunction fill, CUstream stream)
{
    __attribute__((cleanup(end_tensor))) struct tensor tensor = {.stream = stream};
    uint32_t start = 1, count = VALUES;
    CHECK(cuMemAlloc(&tensor.memory, VALUES * sizeof start));
    void *parameters[] = {&tensor.memory, &start, &count};
    launch(fill, 1, 32, stream, parameters);
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STREAMS; i++)
        run(fill, streams[i]);
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuStreamSynchronize(streams[i]));
        CHECK(cuStreamDestroy(streams[i]));
    }
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
