/* Copies of rectangles and boxes with pitches and offsets, blocking and in a stream. */
#include "program.h"

enum { WIDTH = 60, HEIGHT = 20, DEPTH = 5 };

static unsigned char in[DEPTH][HEIGHT][WIDTH], out[DEPTH][HEIGHT][WIDTH];

int main(void)
{
    begin();
    for (int z = 0; z < DEPTH; z++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                in[z][y][x] = (unsigned char)(z * 50 + y * 3 + x);
    CUdeviceptr memory = 0;
    size_t pitch = 0;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuMemAllocPitch(&memory, &pitch, WIDTH, HEIGHT * DEPTH, 4));
    CHECK(cuMemsetD2D8(memory, pitch, 0, WIDTH, HEIGHT * DEPTH));

    CUDA_MEMCPY2D up = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = WIDTH,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = pitch,
        .WidthInBytes = WIDTH, .Height = HEIGHT,
    };
    CUDA_MEMCPY2D down = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = pitch,
        .srcXInBytes = 8, .srcY = 2,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = WIDTH, .dstXInBytes = 4,
        .dstY = 1,
        .WidthInBytes = 40, .Height = 10,
    };
    CHECK(cuMemcpy2D(&up));
    CHECK(cuMemcpy2D(&down));
    for (int y = 0; y < 10; y++)
        EXPECT(memcmp(&out[0][y + 1][4], &in[0][y + 2][8], 40) == 0);
    EXPECT(out[0][0][0] == 0 && out[0][1][3] == 0 && out[0][1][44] == 0);
    printf("rectangle agrees\n");

    memset(out, 0, sizeof out);
    CHECK(cuMemcpy2DUnaligned(&down));
    EXPECT(out[0][1][4] == in[0][2][8]);
    memset(out, 0, sizeof out);
    CHECK(cuMemcpy2DAsync(&up, stream));
    CHECK(cuMemcpy2DAsync(&down, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(out[0][10][43] == in[0][11][47]);
    printf("rectangle in a stream agrees\n");

    CUDA_MEMCPY3D box_up = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = WIDTH, .srcHeight = HEIGHT,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = pitch,
        .dstHeight = HEIGHT,
        .WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = DEPTH,
    };
    CUDA_MEMCPY3D box_down = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = pitch,
        .srcHeight = HEIGHT,
        .srcXInBytes = 4, .srcY = 3, .srcZ = 1,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = WIDTH, .dstHeight = HEIGHT,
        .dstZ = 2,
        .WidthInBytes = 20, .Height = 6, .Depth = 3,
    };
    memset(out, 0, sizeof out);
    CHECK(cuMemcpy3D(&box_up));
    CHECK(cuMemcpy3D(&box_down));
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 6; y++)
            EXPECT(memcmp(&out[z + 2][y][0], &in[z + 1][y + 3][4], 20) == 0);
    EXPECT(out[1][0][0] == 0 && out[2][0][20] == 0 && out[2][6][0] == 0);
    printf("box agrees\n");
    memset(out, 0, sizeof out);
    CHECK(cuMemcpy3DAsync(&box_up, stream));
    CHECK(cuMemcpy3DAsync(&box_down, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(out[4][5][19] == in[3][8][23]);
    show("a byte of the box", out[4][5][19]);

    CUdeviceptr twin = 0;
    CHECK(cuMemAlloc(&twin, pitch * HEIGHT * DEPTH));
    CHECK(cuMemsetD8(twin, 0, pitch * HEIGHT * DEPTH));
    CHECK(cuCtxSynchronize());
    CUDA_MEMCPY3D_PEER across = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = pitch,
        .srcHeight = HEIGHT, .srcContext = context,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = twin, .dstPitch = pitch,
        .dstHeight = HEIGHT, .dstContext = context,
        .WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = 1,
    };
    CHECK(cuMemcpy3DPeer(&across));
    across.Depth = DEPTH;
    CHECK(cuMemcpy3DPeerAsync(&across, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned char last = 0;
    CHECK(cuMemcpyDtoH(&last, twin + (HEIGHT * DEPTH - 1) * pitch + WIDTH - 1, 1));
    EXPECT(last == in[DEPTH - 1][HEIGHT - 1][WIDTH - 1]);
    show("the last byte by the peer calls", last);
    CHECK(cuMemFree(twin));

    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
