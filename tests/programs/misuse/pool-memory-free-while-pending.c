// Memory of cuMemAllocAsync is freed by cuMemFree directly behind its use; the control frees it in
// the order of the stream.
// expect: memory-free-pool-pointer-in-use
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&memory, 4096, stream));
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream));
#ifdef VIOLATE
    CHECK(cuMemFree(memory));
#else
    CHECK(cuMemFreeAsync(memory, stream));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
