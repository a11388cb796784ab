// Rows are copied back from pitched memory, one more than it has: the program counts the borders of
// its image. The control copies its rows.
// expect: memory-copy-out-of-bounds
#include "program.h"

enum { WIDTH = 100, HEIGHT = 16 };

static unsigned char image[WIDTH * (HEIGHT + 1)];

int main(void)
{
    begin();
    CUdeviceptr rows = 0;
    size_t pitch = 0;
    CHECK(cuMemAllocPitch(&rows, &pitch, WIDTH, HEIGHT, 4));
    CHECK(cuMemsetD2D8(rows, pitch, 7, WIDTH, HEIGHT));
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = rows,
        .srcPitch = pitch,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = image,
        .dstPitch = WIDTH,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
#ifdef VIOLATE
    copy.Height = HEIGHT + 1;
    MISUSE(cuMemcpy2D(&copy));
#else
    CHECK(cuMemcpy2D(&copy));
    EXPECT(image[WIDTH * HEIGHT - 1] == 7);
#endif
    CHECK(cuMemFree(rows));
    end();
    return success();
}
