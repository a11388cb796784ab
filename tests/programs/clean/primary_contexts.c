/* Two devices: while one works, a library retains and releases the primary context of the other.
 * That ends nothing of the first: its functions, its page-locked memory, which the CPU goes on
 * writing, and its streams. A release that is not the last ends nothing either. */
// null-driver: CUTAPE_NULL_DEVICES=2
#include "program.h"

enum { COUNT = 4096, BYTES = COUNT * 4 };

static uint32_t values[COUNT];

/* What a library does that looks whether it can use a device. */
static void look_at(CUdevice other, CUcontext own)
{
    CUcontext its = NULL;
    CUdeviceptr memory = 0;
    void *pinned = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&its, other));
    CHECK(cuCtxPushCurrent(its));
    CHECK(cuMemAlloc(&memory, 256));
    CHECK(cuMemHostAlloc(&pinned, 4096, 0));
    CHECK(cuMemsetD8(memory, 1, 256));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(memory));
    CHECK(cuCtxPopCurrent(&its));
    CHECK(cuDevicePrimaryCtxRelease(other));
    CUcontext current = NULL;
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == own);
}

int main(void)
{
    begin();
    CUdevice other = -1;
    CHECK(cuDeviceGet(&other, 1));
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUstream stream = NULL;
    uint32_t *pinned = NULL, count = COUNT;
    CUdeviceptr view = 0, sum = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&pinned, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&view, pinned, 0));
    CHECK(cuMemAlloc(&sum, BYTES));
    void *parameters[] = {&view, &view, &sum, &count};
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t i = 0; i < COUNT; i++)
            pinned[i] = i * round;
        launch(add, 4, 128, stream, parameters);
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH(values, view, BYTES));
        show_u32("seen by the device", values, COUNT);
        EXPECT(values[9] == 9 * round);
        CHECK(cuMemcpyDtoH(values, sum, BYTES));
        EXPECT_KERNEL(values[9] == 18 * round);
        if (round == 1)
            look_at(other, context);
        CUcontext again = NULL;
        CHECK(cuDevicePrimaryCtxRetain(&again, device));
        EXPECT(again == context);
        CHECK(cuDevicePrimaryCtxRelease(device));
    }
    CHECK(cuMemFree(sum));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
