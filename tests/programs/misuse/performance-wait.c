// A wait after each of a hundred launches; the control waits once.
// expect: performance-sync-in-hot-loop
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 100; i++) {
        launch(nothing, 1, 32, stream, NULL);
#ifdef VIOLATE
        CHECK(cuStreamSynchronize(stream));
#endif
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
