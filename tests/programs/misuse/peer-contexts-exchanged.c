// A peer copy names the contexts of its two sides in the wrong order; the control names each where
// it belongs. Both contexts are of one device.
// expect: peer-copy-context-mismatch
#include "program.h"

int main(void)
{
    begin();
    CUcontext other = NULL;
    CUdeviceptr target = 0, source = 0;
    CHECK(cuMemAlloc(&target, 1024));
    CHECK(cuCtxCreate(&other, NULL, 0, device));
    CHECK(cuMemAlloc(&source, 1024));
    CHECK(cuMemsetD8(source, 3, 1024));
#ifdef VIOLATE
    MISUSE(cuMemcpyPeer(target, other, source, context, 1024));
#else
    CHECK(cuMemcpyPeer(target, context, source, other, 1024));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(source));
    CHECK(cuCtxDestroy(other));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree(target));
    end();
    return success();
}
