/* A cooperative launch that fits the device. */
#include "program.h"

enum { COUNT = 1024 };

int main(void)
{
    begin();
    int supported = 0, multiprocessors = 0, blocks = 0;
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device));
    CHECK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 128, 0));
    EXPECT(blocks >= 1 && multiprocessors >= 1);
    CUdeviceptr memory = 0;
    uint32_t start = 50, count = COUNT, out[COUNT];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD32(memory, 0, COUNT));
    void *parameters[] = {&memory, &start, &count};
    if (supported)
        CHECK(cuLaunchCooperativeKernel(fill, 1, 1, 1, 128, 1, 1, 0, NULL, parameters));
    else
        launch(fill, 1, 128, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32("fill", out, COUNT);
    EXPECT_KERNEL(out[COUNT - 1] == 50 + COUNT - 1);
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
