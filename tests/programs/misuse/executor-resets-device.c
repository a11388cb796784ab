// The executor of a library resets the device when it is destroyed, and with it the memory of its
// user; the control's executor releases its own reference.
// https://github.com/ginkgo-project/ginkgo/issues/461
// expect: context-primary-reset-shared context-resource-after-destroy
#include "program.h"

struct executor {
    CUdevice device;
    CUcontext context;
    CUstream stream;
};

static void create(struct executor *executor, CUdevice which)
{
    executor->device = which;
    CHECK(cuDevicePrimaryCtxRetain(&executor->context, which));
    CHECK(cuCtxPushCurrent(executor->context));
    CHECK(cuStreamCreate(&executor->stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxPopCurrent(NULL));
}

static void destroy(struct executor *executor)
{
    CHECK(cuStreamDestroy(executor->stream));
#ifdef VIOLATE
    CHECK(cuDevicePrimaryCtxReset(executor->device));
#else
    CHECK(cuDevicePrimaryCtxRelease(executor->device));
#endif
}

int main(void)
{
    begin();
    CUdeviceptr matrix = 0;
    struct executor executor;
    CHECK(cuMemAlloc(&matrix, 4096));
    create(&executor, device);
    CHECK(cuMemsetD8Async(matrix, 1, 4096, executor.stream));
    CHECK(cuStreamSynchronize(executor.stream));
    destroy(&executor);
    MISUSE(cuMemFree(matrix));
    MISUSE(cuCtxSetCurrent(NULL));
    MISUSE(cuDevicePrimaryCtxRelease(device));
    return success();
}
