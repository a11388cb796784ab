// The size of a copy in bytes goes through an int and becomes huge: 2^28 doubles are 2^31 bytes.
// The control keeps it in a size_t. It copies less, because the null driver copies as well.
// https://github.com/alpaka-group/alpaka/issues/1933
// expect: memory-copy-out-of-bounds
#include "program.h"

#ifdef VIOLATE
typedef int extent;
static const size_t length = (size_t)1 << 28;
#else
typedef size_t extent;
static const size_t length = (size_t)1 << 16;
#endif

static void copy(CUdeviceptr target, CUdeviceptr source, extent bytes, CUstream stream)
{
    MISUSE(cuMemcpyDtoDAsync(target, source, (size_t)bytes, stream));
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr a = 0, b = 0;
    const size_t bytes = length * sizeof(double);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&a, bytes));
    CHECK(cuMemAlloc(&b, bytes));
    CHECK(cuMemsetD8Async(a, 1, 4096, stream));
    copy(b, a, (extent)bytes, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(b));
    CHECK(cuMemFree(a));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
