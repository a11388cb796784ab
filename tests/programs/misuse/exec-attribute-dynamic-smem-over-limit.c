// More dynamic shared memory is set than a block can have; the control looks for the largest size
// that the driver takes, and begins above the limit.
// expect: exec-attribute-dynamic-smem-over-limit
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    int limit = 0;
    CHECK(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                               device));
    int bytes = limit + 4096;
#ifdef VIOLATE
    MISUSE(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
#else
    while (cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) !=
           CUDA_SUCCESS)
        bytes -= 1024;
    EXPECT(bytes <= limit);
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
