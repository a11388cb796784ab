// Two functions with different cache configurations are launched in turn; the control gives both the
// same.
// expect: performance-cache-config-switch
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING), second = load_ptx(PTX_NOTHING);
    CUfunction first = function_of(module, "nothing"), other = function_of(second, "nothing");
    CHECK(cuFuncSetCacheConfig(first, CU_FUNC_CACHE_PREFER_L1));
#ifdef VIOLATE
    CHECK(cuFuncSetCacheConfig(other, CU_FUNC_CACHE_PREFER_SHARED));
#else
    CHECK(cuFuncSetCacheConfig(other, CU_FUNC_CACHE_PREFER_L1));
#endif
    CUfunction both[] = {first, other};
    for (int i = 0; i < 100; i++)
        launch(both[i % 2], 1, 32, NULL, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(second));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
