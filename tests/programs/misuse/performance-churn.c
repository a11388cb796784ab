// Memory is allocated and freed around each launch; the control allocates once.
// expect: performance-allocation-churn
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    for (int i = 0; i < 100; i++) {
#ifdef VIOLATE
        CHECK(cuMemFree(memory));
        CHECK(cuMemAlloc(&memory, 4096));
#endif
        launch(nothing, 1, 32, NULL, NULL);
    }
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
