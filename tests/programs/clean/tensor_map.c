/* Tensor map descriptors: encoded on the host for device memory, then given another address. */
#include "program.h"

enum { ROWS = 32, COLUMNS = 64 };

int main(void)
{
    begin();
    int major = 0;
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    if (major < 9) {
        printf("not supported by this device\n");
        end();
        return success();
    }
    CUdeviceptr memory = 0, other = 0;
    CHECK(cuMemAlloc(&memory, 2 * ROWS * COLUMNS * 4)); /* the tensor for im2col */
    CHECK(cuMemAlloc(&other, ROWS * COLUMNS * 4));
    static CUtensorMap tiled __attribute__((aligned(64))), columns __attribute__((aligned(64)));
    cuuint64_t sides[2] = {COLUMNS, ROWS}, strides[1] = {COLUMNS * 4};
    cuuint32_t box[2] = {16, 8}, steps[2] = {1, 1};
    CHECK(cuTensorMapEncodeTiled(&tiled, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)memory, sides,
                                 strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_NONE,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    CUtensorMap first = tiled;
    CHECK(cuTensorMapReplaceAddress(&tiled, (void *)other));
    EXPECT(memcmp(&first, &tiled, sizeof tiled) != 0);
    CHECK(cuTensorMapReplaceAddress(&tiled, (void *)memory));
    EXPECT(memcmp(&first, &tiled, sizeof tiled) == 0);
    printf("a tiled map\n");

    cuuint64_t image[4] = {16, 8, 8, 4}, image_strides[3] = {64, 512, 4096};
    cuuint32_t image_steps[4] = {1, 1, 1, 1};
    int lower[2] = {0, 0}, upper[2] = {0, 0};
    CHECK(cuTensorMapEncodeIm2col(&columns, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, (void *)memory,
                                  image, image_strides, lower, upper, 16, 8, image_steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    printf("an im2col map\n");
    CHECK(cuMemFree(other));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
