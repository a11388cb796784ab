// The stride of a frame comes from its producer, which reports less than a row for some frames;
// the copy of such a frame fails. The control takes rows without gaps there.
// https://github.com/LizardByte/Sunshine/issues/5640
// expect: memory-copy-descriptor
#include "program.h"

enum { WIDTH = 64, HEIGHT = 16, PIXEL = 4 };

struct frame {
    const void *data;
    size_t stride;
};

static void load(CUarray array, struct frame frame)
{
#ifndef VIOLATE
    if (frame.stride < WIDTH * PIXEL)
        frame.stride = WIDTH * PIXEL;
#endif
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = frame.data,
        .srcPitch = frame.stride,
        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
        .dstArray = array,
        .WidthInBytes = WIDTH * PIXEL,
        .Height = HEIGHT,
    };
    MISUSE(cuMemcpy2D(&copy));
}

int main(void)
{
    begin();
    static const uint32_t pixels[WIDTH * HEIGHT];
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR wanted = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4,
    };
    CHECK(cuArrayCreate(&array, &wanted));
    load(array, (struct frame){pixels, WIDTH * PIXEL});
    load(array, (struct frame){pixels, WIDTH});
    CHECK(cuArrayDestroy(array));
    end();
    return success();
}
