// Managed memory is allocated without a flag that says to what it is attached; the control passes
// CU_MEM_ATTACH_GLOBAL.
// https://github.com/inducer/pycuda/issues/222
// expect: memory-managed-stream-attachment
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
#ifdef VIOLATE
    MISUSE(cuMemAllocManaged(&memory, 4096, 0));
#else
    CHECK(cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
#endif
    if (memory)
        CHECK(cuMemFree(memory));
    end();
    return success();
}
