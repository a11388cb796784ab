// A preferred cluster size without a regular one; the control has both.
// expect: launch-config-preferred-cluster-alone
// needs: a GPU with clusters (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
    attributes[0].value.preferredClusterDim.x = 4;
    attributes[0].value.preferredClusterDim.y = 1;
    attributes[0].value.preferredClusterDim.z = 1;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[1].value.clusterDim.x = 2;
    attributes[1].value.clusterDim.y = 1;
    attributes[1].value.clusterDim.z = 1;
#ifdef VIOLATE
    unsigned count = 1;
#else
    unsigned count = 2;
#endif
    CUlaunchConfig config = configuration(8, 32, NULL, attributes, count);
    MISUSE(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
