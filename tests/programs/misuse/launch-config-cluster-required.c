// A kernel compiled for clusters of a size to be chosen is launched without; the control gives one.
// expect: launch-config-cluster-required
// needs: a GPU with clusters (sm_90)
#include "program.h"

static const char kernel[] = PTX_HEAD_90
    ".visible .entry choosing() .explicitcluster\n" PTX_EMPTY_BODY;

int main(void)
{
    begin();
    CUmodule module = load_ptx(kernel);
    CUfunction choosing = function_of(module, "choosing");
    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = 2;
    attributes[0].value.clusterDim.y = 1;
    attributes[0].value.clusterDim.z = 1;
#ifdef VIOLATE
    unsigned count = 0;
#else
    unsigned count = 1;
#endif
    CUlaunchConfig config = configuration(4, 32, NULL, count ? attributes : NULL, count);
    MISUSE(cuLaunchKernelEx(&config, choosing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
