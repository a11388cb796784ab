// A kernel gets a tensor map of freed memory; the control encodes the map of the new memory. The
// kernel does not read the tensor.
// expect: texture-tensor-map-stale
// needs: compute capability 9.0
#include "program.h"

/* A kernel with a tensor map as its parameter, which it ignores. */
static const char TAKES[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry takes(.param .align 64 .b8 map[128])\n{\n    ret;\n}\n";

static CUtensorMap map __attribute__((aligned(64)));

static void encode(CUdeviceptr memory)
{
    cuuint64_t sides[2] = {64, 64}, strides[1] = {128};
    cuuint32_t box[2] = {64, 8}, steps[2] = {1, 1};
    CHECK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)memory, sides,
                                 strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(TAKES);
    CUfunction takes = function_of(module, "takes");
    CUdeviceptr memory = 0, other = 0;
    CHECK(cuMemAlloc(&memory, 64 * 128));
    CHECK(cuMemAlloc(&other, 64 * 128));
    encode(memory);
    CHECK(cuMemFree(memory));
#ifndef VIOLATE
    encode(other);
#endif
    void *parameters[] = {&map};
    launch(takes, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(other));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
