// Clusters of 16 blocks without permission; the control has 8.
// expect: launch-config-cluster-nonportable
// needs: a GPU with clusters (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
#ifdef VIOLATE
    unsigned blocks = 16;
#else
    unsigned blocks = 8;
#endif
    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = blocks;
    attributes[0].value.clusterDim.y = 1;
    attributes[0].value.clusterDim.z = 1;
    CUlaunchConfig config = configuration(16, 32, NULL, attributes, 1);
    MISUSE(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
