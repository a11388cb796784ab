// Only the width of the required cluster is set before the launch; the control sets all three.
// expect: exec-attribute-cluster-partial
// needs: a GPU with clusters (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CHECK(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
#ifndef VIOLATE
    CHECK(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1));
    CHECK(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1));
#endif
    MISUSE(cuLaunchKernel(nothing, 4, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
