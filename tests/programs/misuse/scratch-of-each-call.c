// Each call of a function allocates memory for its shape and frees it after the launch, which
// waits for all work of the device. The control takes it from a pool, as it does for the arrays.
// https://github.com/CanReader/FastNN/issues/21
// expect: performance-implicit-sync
// may: memory-free-pending-work
// needs: frees that last 1 ms or more; the null driver delays them
// null-driver: CUTAPE_NULL_DELAY=cuMemFree_v2@*=2ms
#include "program.h"

static void sum_axis(CUfunction add, CUdeviceptr input, CUdeviceptr output)
{
    static const uint32_t dimensions[4] = {2, 3, 4, 5};
    uint32_t count = 4;
    CUdeviceptr shape = 0;
    void *parameters[] = {&input, &shape, &output, &count};
#ifdef VIOLATE
    CHECK(cuMemAlloc(&shape, sizeof dimensions));
#else
    CHECK(cuMemAllocAsync(&shape, sizeof dimensions, NULL));
#endif
    CHECK(cuMemcpyHtoDAsync(shape, dimensions, sizeof dimensions, NULL));
    launch(add, 1, 32, NULL, parameters);
#ifdef VIOLATE
    CHECK(cuMemFree(shape));
#else
    CHECK(cuMemFreeAsync(shape, NULL));
#endif
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUdeviceptr input = 0, output = 0;
    CHECK(cuMemAllocAsync(&input, 256, NULL));
    CHECK(cuMemAllocAsync(&output, 256, NULL));
    CHECK(cuMemsetD32Async(input, 1, 64, NULL));
    for (int step = 0; step < 10; step++)
        sum_axis(add, input, output);
    CHECK(cuMemFreeAsync(output, NULL));
    CHECK(cuMemFreeAsync(input, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
