// The user of a library chooses the grid of a cooperative kernel, which is more than the device
// can keep resident; the control's library reduces it to that.
// https://github.com/cupy/cupy/pull/3894
// expect: launch-config-cooperative-too-large
#include "program.h"

static void launch_cooperatively(CUfunction function, unsigned grid, unsigned block)
{
#ifndef VIOLATE
    int resident = 0, processors = 0;
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function, (int)block, 0));
    CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    if (grid > (unsigned)(resident * processors))
        grid = (unsigned)(resident * processors);
#endif
    MISUSE(cuLaunchCooperativeKernel(function, grid, 1, 1, block, 1, 1, 0, NULL, NULL));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    launch_cooperatively(function_of(module, "nothing"), 1 << 16, 256);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
