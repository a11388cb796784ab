// Freed memory is set; the control sets memory that was allocated anew, perhaps at the same
// address.
// expect: memory-use-after-free-operand
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 1024));
    CHECK(cuMemFree(memory));
#ifdef VIOLATE
    MISUSE(cuMemsetD8(memory, 0, 1024));
#else
    CHECK(cuMemAlloc(&memory, 1024));
    CHECK(cuMemsetD8(memory, 0, 1024));
    CHECK(cuMemFree(memory));
#endif
    end();
    return success();
}
