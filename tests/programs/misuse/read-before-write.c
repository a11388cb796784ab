// Fresh device memory is read; the control sets it first.
// expect: memory-uninitialised-read
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    uint32_t values[64];
    CHECK(cuMemAlloc(&memory, sizeof values));
#ifndef VIOLATE
    CHECK(cuMemsetD32(memory, 0, 64));
#endif
    CHECK(cuMemcpyDtoH(values, memory, sizeof values));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
