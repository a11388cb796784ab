// Memory is allocated with a context retained but not current; the control makes it current.
// expect: context-none-current
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CUdeviceptr memory = 0;
#ifdef VIOLATE
    CUresult result = cuMemAlloc(&memory, 1024);
#else
    CHECK(cuCtxSetCurrent(context));
    CUresult result = cuMemAlloc(&memory, 1024);
#endif
    if (result == CUDA_SUCCESS)
        CHECK(cuMemFree(memory));
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuDevicePrimaryCtxRelease(device));
    return success();
}
