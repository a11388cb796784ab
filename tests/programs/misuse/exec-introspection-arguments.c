// A question for a parameter far behind the last; the control counts them until the driver refuses.
// expect: exec-introspection-arguments
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    size_t offset = 0, size = 0, count = 0;
#ifdef VIOLATE
    MISUSE(cuFuncGetParamInfo(fill, 1000, &offset, &size));
#else
    while (cuFuncGetParamInfo(fill, count, &offset, &size) == CUDA_SUCCESS)
        count++;
    EXPECT(count == 3);
#endif
    show("parameters", count);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
