// A buffer is freed in the stream in which it was allocated, while a kernel of another stream runs
// (https://github.com/NVlabs/cuda-oxide/issues/619). The control lets the free wait for the kernel.
// expect: memory-pool-access-unordered
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream owner = NULL, other = NULL;
    CUevent allocated = NULL, used = NULL;
    CHECK(cuStreamCreate(&owner, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&allocated, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr memory = 0;
    CHECK(cuMemAllocAsync(&memory, 4096, owner));
    CHECK(cuEventRecord(allocated, owner));
    CHECK(cuStreamWaitEvent(other, allocated, 0));
    uint32_t start = 0, count = 0; /* the kernel touches nothing */
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, 32, other, parameters);
#ifndef VIOLATE
    CHECK(cuEventRecord(used, other));
    CHECK(cuStreamWaitEvent(owner, used, 0));
#endif
    CHECK(cuMemFreeAsync(memory, owner));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(used));
    CHECK(cuEventDestroy(allocated));
    CHECK(cuStreamDestroy(other));
    CHECK(cuStreamDestroy(owner));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
