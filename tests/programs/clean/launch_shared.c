/* Reductions in static and in dynamic shared memory, also with more than the default limit after
 * opting in. */
#include "program.h"

enum { COUNT = 10000, BLOCKS = (COUNT + 127) / 128 };

static uint32_t run(CUfunction function, unsigned shared, CUdeviceptr in, CUdeviceptr sum)
{
    uint32_t count = COUNT, value = 0;
    CHECK(cuMemsetD32(sum, 0, 1));
    void *parameters[] = {&in, &sum, &count};
    CHECK(cuLaunchKernel(function, BLOCKS, 1, 1, 128, 1, 1, shared, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&value, sum, sizeof value));
    EXPECT_KERNEL(value == COUNT * (COUNT - 1) / 2);
    return value;
}

int main(void)
{
    begin();
    static uint32_t values[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = i;
    CUmodule with_static = load_ptx(PTX_REDUCE), with_dynamic = load_ptx(PTX_REDUCE_DYNAMIC);
    CUfunction fixed = function_of(with_static, "reduce");
    CUfunction dynamic = function_of(with_dynamic, "reduce_dynamic");
    CUdeviceptr in = 0, sum = 0;
    CHECK(cuMemAlloc(&in, sizeof values));
    CHECK(cuMemAlloc(&sum, sizeof(uint32_t)));
    CHECK(cuMemcpyHtoD(in, values, sizeof values));
    show("static", run(fixed, 0, in, sum));
    show("dynamic, 512 bytes", run(dynamic, 512, in, sum));
    int most = 0;
    CHECK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                               device));
    EXPECT(most >= 48 << 10);
    CHECK(cuFuncSetAttribute(dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    show("dynamic, as much as there is", run(dynamic, (unsigned)most, in, sum));
    CHECK(cuMemFree(sum));
    CHECK(cuMemFree(in));
    CHECK(cuModuleUnload(with_dynamic));
    CHECK(cuModuleUnload(with_static));
    end();
    return success();
}
