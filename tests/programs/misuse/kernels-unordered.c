// Two kernels whose names tell nothing fill one buffer in two streams; the control lets the second
// wait for the first.
// expect: memory-race-cross-stream
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream first = NULL, second = NULL;
    CUevent filled = NULL;
    CUdeviceptr memory = 0;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, 4096));
    uint32_t start = 0, count = 32;
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, 32, first, parameters);
#ifndef VIOLATE
    CHECK(cuEventRecord(filled, first));
    CHECK(cuStreamWaitEvent(second, filled, 0));
#endif
    launch(fill, 1, 32, second, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(filled));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
