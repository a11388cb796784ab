// A copy of rows states a pitch that is shorter than a row; the control states the row's length.
// expect: memory-copy-descriptor
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr rows = 0, memory = 0;
    CHECK(cuMemAlloc(&rows, 4 * 32));
    CHECK(cuMemAlloc(&memory, 4 * 64));
    CHECK(cuMemsetD8(rows, 1, 4 * 32));
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = rows,
#ifdef VIOLATE
        .srcPitch = 16,
#else
        .srcPitch = 32,
#endif
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = memory,
        .dstPitch = 64,
        .WidthInBytes = 32,
        .Height = 4,
    };
#ifdef VIOLATE
    MISUSE(cuMemcpy2D(&copy));
#else
    CHECK(cuMemcpy2D(&copy));
#endif
    CHECK(cuMemFree(memory));
    CHECK(cuMemFree(rows));
    end();
    return success();
}
