// Memory of a pool is freed with cuMemFree right after a launch that uses it; the control frees it
// in the order of the stream.
// expect: memory-free-pool-pointer-in-use
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    uint32_t start = 5, count = 1024;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&memory, count * sizeof start, stream));
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 8, 128, stream, parameters);
#ifdef VIOLATE
    CHECK(cuMemFree(memory));
#else
    CHECK(cuMemFreeAsync(memory, stream));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
