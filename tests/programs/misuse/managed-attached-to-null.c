// Managed memory is attached to the NULL stream alone; the control attaches it to a stream.
// expect: memory-managed-stream-attachment
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
#ifdef VIOLATE
    EXPECT(cuStreamAttachMemAsync(NULL, memory, 0, CU_MEM_ATTACH_SINGLE) ==
           CUDA_ERROR_INVALID_VALUE);
#else
    CHECK(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
