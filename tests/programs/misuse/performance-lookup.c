// A function is looked up before each launch; the control looks it up once.
// expect: performance-symbol-lookup-per-launch
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    for (int i = 0; i < 100; i++) {
#ifdef VIOLATE
        nothing = function_of(module, "nothing");
#endif
        launch(nothing, 1, 32, NULL, NULL);
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
