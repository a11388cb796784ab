// One allocation is freed twice; the control allocates again, perhaps at the same address, and
// frees that.
// expect: memory-double-free
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 1024));
    CHECK(cuMemFree(memory));
#ifdef VIOLATE
    MISUSE(cuMemFree(memory));
#else
    CHECK(cuMemAlloc(&memory, 1024));
    CHECK(cuMemFree(memory));
#endif
    end();
    return success();
}
