// A required cluster size is set on a kernel that was compiled with one; the control sets it on one
// that leaves the choice.
// expect: exec-attribute-cluster-compile-time
// needs: a GPU with clusters (sm_90)
#include "program.h"

static const char kernels[] = PTX_HEAD_90
    ".visible .entry fixed() .explicitcluster .reqnctapercluster 2, 1, 1\n" PTX_EMPTY_BODY
    ".visible .entry choosing() .explicitcluster\n" PTX_EMPTY_BODY;

int main(void)
{
    begin();
    CUmodule module = load_ptx(kernels);
#ifdef VIOLATE
    CUfunction function = function_of(module, "fixed");
    MISUSE(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4));
#else
    CUfunction function = function_of(module, "choosing");
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
