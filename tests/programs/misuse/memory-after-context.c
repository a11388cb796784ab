// Memory is freed after its context was destroyed; the control frees it before.
// expect: context-resource-after-destroy
// may: memory-leak
#include "program.h"

int main(void)
{
    begin();
    CUcontext own = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuCtxCreate(&own, NULL, 0, device));
    CHECK(cuMemAlloc(&memory, 1024));
#ifdef VIOLATE
    CHECK(cuCtxDestroy(own));
    CHECK(cuCtxSetCurrent(context));
    MISUSE(cuMemFree(memory));
#else
    CHECK(cuMemFree(memory));
    CHECK(cuCtxDestroy(own));
#endif
    end();
    return success();
}
