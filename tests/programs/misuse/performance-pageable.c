// Large copies of pageable memory; the control registers it.
// expect: performance-pageable-copy
#include "program.h"

static char buffer[256 << 10];

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, sizeof buffer));
#ifndef VIOLATE
    CHECK(cuMemHostRegister(buffer, sizeof buffer, 0));
#endif
    for (int i = 0; i < 40; i++)
        CHECK(cuMemcpyHtoD(memory, buffer, sizeof buffer));
#ifndef VIOLATE
    CHECK(cuMemHostUnregister(buffer));
#endif
    CHECK(cuMemFree(memory));
    end();
    return success();
}
