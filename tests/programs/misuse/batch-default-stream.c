// A batch of copies is put into the default stream, as a library does that takes any stream
// (https://github.com/NVIDIA/cudf/pull/20800). The control has a stream of its own.
// expect: memory-batch-copy-invalid
#include "program.h"

enum { SIZE = 4096 };

static unsigned char in[SIZE];

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, SIZE));
    CUdeviceptr targets[] = {memory}, sources[] = {(CUdeviceptr)(uintptr_t)in};
    size_t sizes[] = {SIZE}, index = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
#ifdef VIOLATE
    MISUSE(cuMemcpyBatchAsync(targets, sources, sizes, 1, &attributes, &index, 1, NULL));
#else
    SUPPORTED(cuMemcpyBatchAsync(targets, sources, sizes, 1, &attributes, &index, 1, stream));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
