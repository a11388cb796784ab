// The two copies of a batch exchange two buffers; the control copies to a third one.
// expect: memory-batch-copy-invalid
#include "program.h"

int main(void)
{
    begin();
    enum { SIZE = 4096 };
    CUstream stream = NULL;
    CUdeviceptr a = 0, b = 0, c = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&a, SIZE));
    CHECK(cuMemAlloc(&b, SIZE));
    CHECK(cuMemAlloc(&c, SIZE));
    CHECK(cuMemsetD8(a, 1, SIZE));
    CHECK(cuMemsetD8(b, 2, SIZE));
    CHECK(cuCtxSynchronize());
#ifdef VIOLATE
    CUdeviceptr targets[] = {b, a}, sources[] = {a, b};
#else
    CUdeviceptr targets[] = {c, b}, sources[] = {a, a};
#endif
    size_t sizes[] = {SIZE, SIZE}, index = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUresult result = cuMemcpyBatchAsync(targets, sources, sizes, 2, &attributes, &index, 1,
                                         stream);
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        CHECK(result);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(c));
    CHECK(cuMemFree(b));
    CHECK(cuMemFree(a));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
