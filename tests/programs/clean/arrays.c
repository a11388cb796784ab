/* CUDA arrays: one, two and three dimensions, copied from and to host, device and each other. */
#include "program.h"

enum { WIDTH = 64, HEIGHT = 16, DEPTH = 4 };

int main(void)
{
    begin();
    static uint32_t in[HEIGHT][WIDTH], out[HEIGHT][WIDTH];
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            in[y][x] = (uint32_t)(y * 1000 + x);

    CUarray line = NULL, other_line = NULL, plane = NULL, box = NULL;
    CUDA_ARRAY_DESCRIPTOR line_shape = {.Width = WIDTH, .Height = 0,
                                        .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUDA_ARRAY_DESCRIPTOR plane_shape = {.Width = WIDTH, .Height = HEIGHT,
                                         .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR box_shape = {
        .Width = WIDTH, .Height = HEIGHT, .Depth = DEPTH, .Format = CU_AD_FORMAT_UNSIGNED_INT32,
        .NumChannels = 1};
    if (!SUPPORTED(cuArrayCreate(&line, &line_shape))) {
        end();
        return success();
    }
    CHECK(cuArrayCreate(&other_line, &line_shape));
    CHECK(cuArrayCreate(&plane, &plane_shape));
    CHECK(cuArray3DCreate(&box, &box_shape));

    CUDA_ARRAY_DESCRIPTOR shape;
    memset(&shape, 0, sizeof shape);
    CHECK(cuArrayGetDescriptor(&shape, plane));
    EXPECT(shape.Width == WIDTH && shape.Height == HEIGHT && shape.NumChannels == 1);
    CUDA_ARRAY3D_DESCRIPTOR shape3;
    memset(&shape3, 0, sizeof shape3);
    CHECK(cuArray3DGetDescriptor(&shape3, box));
    EXPECT(shape3.Width == WIDTH && shape3.Height == HEIGHT && shape3.Depth == DEPTH);
    printf("shapes agree\n");

    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, sizeof in[0]));
    CHECK(cuMemcpyHtoA(line, 0, in[3], sizeof in[3]));
    CHECK(cuMemcpyAtoA(other_line, 0, line, 0, sizeof in[3]));
    CHECK(cuMemcpyAtoD(memory, other_line, 0, sizeof in[3]));
    CHECK(cuMemcpyDtoA(line, 0, memory, sizeof in[3]));
    CHECK(cuMemcpyAtoH(out[0], line, 0, sizeof in[3]));
    EXPECT(memcmp(out[0], in[3], sizeof in[3]) == 0);
    show_u32("line", out[0], WIDTH);

    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemcpyHtoAAsync(line, 0, in[5], sizeof in[5], stream));
    CHECK(cuMemcpyAtoHAsync(out[1], line, 0, sizeof in[5], stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(out[1], in[5], sizeof in[5]) == 0);
    CHECK(cuStreamDestroy(stream));

    CUDA_MEMCPY2D up = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = sizeof in[0],
        .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = plane,
        .WidthInBytes = sizeof in[0], .Height = HEIGHT,
    };
    CUDA_MEMCPY2D down = {
        .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = plane,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = sizeof out[0],
        .WidthInBytes = sizeof in[0], .Height = HEIGHT,
    };
    CHECK(cuMemcpy2D(&up));
    CHECK(cuMemcpy2D(&down));
    EXPECT(memcmp(in, out, sizeof in) == 0);
    show_u32("plane", &out[0][0], WIDTH * HEIGHT);

    for (size_t z = 0; z < DEPTH; z++) {
        CUDA_MEMCPY3D layer = {
            .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = sizeof in[0],
            .srcHeight = HEIGHT,
            .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = box, .dstZ = z,
            .WidthInBytes = sizeof in[0], .Height = HEIGHT, .Depth = 1,
        };
        CHECK(cuMemcpy3D(&layer));
    }
    memset(out, 0, sizeof out);
    CUDA_MEMCPY3D last = {
        .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = box, .srcZ = DEPTH - 1,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = sizeof out[0],
        .dstHeight = HEIGHT,
        .WidthInBytes = sizeof in[0], .Height = HEIGHT, .Depth = 1,
    };
    CHECK(cuMemcpy3D(&last));
    EXPECT(memcmp(in, out, sizeof in) == 0);
    printf("box agrees\n");

    CUmipmappedArray levels = NULL;
    CUarray level = NULL;
    CUDA_ARRAY3D_DESCRIPTOR levels_shape = {
        .Width = WIDTH, .Height = HEIGHT, .Depth = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT32,
        .NumChannels = 1};
    CHECK(cuMipmappedArrayCreate(&levels, &levels_shape, 3));
    CHECK(cuMipmappedArrayGetLevel(&level, levels, 1));
    CHECK(cuArrayGetDescriptor(&shape, level));
    EXPECT(shape.Width == WIDTH / 2 && shape.Height == HEIGHT / 2);
    CHECK(cuMipmappedArrayDestroy(levels));

    CHECK(cuMemFree(memory));
    CHECK(cuArrayDestroy(box));
    CHECK(cuArrayDestroy(plane));
    CHECK(cuArrayDestroy(other_line));
    CHECK(cuArrayDestroy(line));
    end();
    return success();
}
