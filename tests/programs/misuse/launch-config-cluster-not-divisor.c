// A grid of three blocks in clusters of two; the control has four.
// expect: launch-config-cluster-not-divisor
// needs: a GPU with clusters (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = 2;
    attributes[0].value.clusterDim.y = 1;
    attributes[0].value.clusterDim.z = 1;
#ifdef VIOLATE
    unsigned grid = 3;
#else
    unsigned grid = 4;
#endif
    CUlaunchConfig config = configuration(grid, 32, NULL, attributes, 1);
    MISUSE(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
