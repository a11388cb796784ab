// Pinned host memory is freed as device memory; the control frees it as what it is.
// expect: memory-free-wrong-kind
#include "program.h"

int main(void)
{
    begin();
    void *pinned = NULL;
    CHECK(cuMemAllocHost(&pinned, 4096));
#ifdef VIOLATE
    MISUSE(cuMemFree((CUdeviceptr)(uintptr_t)pinned));
#endif
    CHECK(cuMemFreeHost(pinned));
    end();
    return success();
}
