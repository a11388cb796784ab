// The items of a batch are copied to `output + item * bytes`, where `output` points at floats:
// from the second item on, the target is past its allocation. The control counts in floats.
// https://github.com/NVIDIA/TensorRT/pull/441
// expect: memory-copy-out-of-bounds
// replay-skips: cuMemcpyDtoDAsync_v2
#include "program.h"

enum { BATCH = 4, LENGTH = 1024 };

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr input = 0, output = 0;
    const size_t bytes = LENGTH * sizeof(float);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&input, BATCH * bytes));
    CHECK(cuMemAlloc(&output, BATCH * bytes));
    CHECK(cuMemsetD32Async(input, 0, BATCH * LENGTH, stream));
    for (size_t item = 0; item < BATCH; item++) {
        const float *source = (const float *)(uintptr_t)input + item * LENGTH;
#ifdef VIOLATE
        float *target = (float *)(uintptr_t)output + item * bytes;
#else
        float *target = (float *)(uintptr_t)output + item * LENGTH;
#endif
        MISUSE(cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)target, (CUdeviceptr)(uintptr_t)source,
                                 bytes, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(output));
    CHECK(cuMemFree(input));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
