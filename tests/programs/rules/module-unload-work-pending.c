// A module is unloaded while a launch of it may be running; the control waits first.
// expect: module-unload-work-pending
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    uint32_t start = 1, count = 1 << 20;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, (size_t)count * 4));
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, 32, stream, parameters);
#ifdef VIOLATE
    MISUSE(cuModuleUnload(module));
    CHECK(cuStreamSynchronize(stream));
#else
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuModuleUnload(module));
#endif
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
