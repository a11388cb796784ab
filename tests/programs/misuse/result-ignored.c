// The output of an allocation that failed is used; the control asks for less.
// expect: errors-result-ignored
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0xdead0000;
#ifdef VIOLATE
    EXPECT(cuMemAlloc(&memory, (size_t)1 << 60) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemsetD8(memory, 0, 16) == CUDA_ERROR_INVALID_VALUE);
#else
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD8(memory, 0, 16));
    CHECK(cuMemFree(memory));
#endif
    end();
    return success();
}
