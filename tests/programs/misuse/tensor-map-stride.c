// A tensor map whose rows are not a multiple of 16 bytes apart; the control pads them.
// expect: texture-tensor-map-constraints
// needs: compute capability 9.0
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 64 * 144));
    static CUtensorMap map __attribute__((aligned(64)));
    cuuint64_t sides[2] = {64, 64}, strides[1] = {144};
    cuuint32_t box[2] = {64, 8}, steps[2] = {1, 1};
#ifdef VIOLATE
    strides[0] = 136;
#endif
    MISUSE(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)memory, sides,
                                  strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
