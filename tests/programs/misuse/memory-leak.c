// The pointer to an allocation is lost in every round; the control frees it.
// expect: memory-leak
#include "program.h"

int main(void)
{
    begin();
    for (int round = 0; round < 20; round++) {
        CUdeviceptr memory = 0;
        CHECK(cuMemAlloc(&memory, 1 << 20));
        CHECK(cuMemsetD8(memory, 0, 1 << 20));
#ifndef VIOLATE
        CHECK(cuMemFree(memory));
#endif
    }
    end();
    return success();
}
