// The first launch of a function is measured; the control launches it once before.
// expect: performance-lazy-load-in-hot-path
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUevent start = NULL, stop = NULL;
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
#ifndef VIOLATE
    launch(nothing, 1, 32, NULL, NULL);
#endif
    CHECK(cuEventRecord(start, NULL));
    launch(nothing, 1, 32, NULL, NULL);
    CHECK(cuEventRecord(stop, NULL));
    CHECK(cuEventSynchronize(stop));
    float milliseconds = 0;
    CHECK(cuEventElapsedTime(&milliseconds, start, stop));
    CHECK(cuEventDestroy(start));
    CHECK(cuEventDestroy(stop));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
