// A memset of words is given the number of bytes; the control gives the number of words.
// expect: memory-copy-out-of-bounds
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    const size_t bytes = (size_t)2 << 20;
    CHECK(cuMemAlloc(&memory, bytes));
#ifdef VIOLATE
    MISUSE(cuMemsetD32(memory, 0, bytes));
#else
    CHECK(cuMemsetD32(memory, 0, bytes / 4));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    end();
    return success();
}
