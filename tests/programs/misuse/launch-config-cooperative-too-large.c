// A cooperative grid of 1,000 blocks a multiprocessor; the control asks how many fit.
// expect: launch-config-cooperative-too-large
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    int multiprocessors = 0, blocks = 1000;
    CHECK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
#ifndef VIOLATE
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 256, 0));
#endif
    unsigned grid = (unsigned)(blocks * multiprocessors);
    MISUSE(cuLaunchCooperativeKernel(nothing, grid, 1, 1, 256, 1, 1, 0, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
