// A program frees the address that it has moved along its memory; the control keeps the first.
// expect: memory-free-wrong-kind
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    CUdeviceptr next = memory;
    for (int i = 0; i < 4; i++, next += 1024)
        CHECK(cuMemsetD8(next, 1, 1024));
    CHECK(cuCtxSynchronize());
#ifdef VIOLATE
    MISUSE(cuMemFree(next - 1024));
#endif
    CHECK(cuMemFree(memory));
    end();
    return success();
}
