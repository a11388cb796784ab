// A block is grown while it is not larger than the best size, and so once more when it has that
// size, to 1025 threads. The result is dropped. The control stops when it has the size.
// https://github.com/isaac-for-healthcare/i4h-sensor-simulation/issues/59
// expect: launch-config-dimension-out-of-range
#include "program.h"

static unsigned choose(unsigned best)
{
    unsigned threads = 1;
    while (threads * 2 <= best)
        threads *= 2;
#ifdef VIOLATE
    while (threads <= best)
#else
    while (threads < best)
#endif
        threads++;
    return threads;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction row = function_of(module, "fill");
    CUdeviceptr memory = 0;
    uint32_t start = 0, count = 1024;
    CHECK(cuMemAlloc(&memory, 4096));
    void *parameters[] = {&memory, &start, &count};
    MISUSE(cuLaunchKernel(row, 1, 1, 1, choose(1024), 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
