// A primary context is released more often than it was retained; the control counts right.
// expect: context-unbalanced
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuDevicePrimaryCtxRelease(device));
#ifdef VIOLATE
    MISUSE(cuDevicePrimaryCtxRelease(device));
#endif
    return success();
}
