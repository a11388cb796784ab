// The loading mode is chosen in the environment after cuInit; the control does so before.
// expect: module-loading-mode-env-late
#include "program.h"

int main(void)
{
#ifdef VIOLATE
    EXPECT(unsetenv("CUDA_MODULE_LOADING") == 0);
#else
    EXPECT(setenv("CUDA_MODULE_LOADING", "EAGER", 1) == 0);
#endif
    begin();
#ifdef VIOLATE
    EXPECT(setenv("CUDA_MODULE_LOADING", "EAGER", 1) == 0);
#endif
    CUmoduleLoadingMode mode;
    CHECK(cuModuleGetLoadingMode(&mode));
    CUmodule module = load_ptx(PTX_FILL);
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
