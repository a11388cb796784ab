// A preferred cluster size of three blocks with a regular one of two; the control prefers four.
// expect: launch-config-preferred-cluster-shape
// needs: a GPU with clusters (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
#ifdef VIOLATE
    unsigned blocks = 3;
#else
    unsigned blocks = 4;
#endif
    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = 2;
    attributes[0].value.clusterDim.y = 1;
    attributes[0].value.clusterDim.z = 1;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
    attributes[1].value.preferredClusterDim.x = blocks;
    attributes[1].value.preferredClusterDim.y = 1;
    attributes[1].value.preferredClusterDim.z = 1;
    CUlaunchConfig config = configuration(12, 32, NULL, attributes, 2);
    MISUSE(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
