/* Memsets of 8, 16 and 32 bits, linear and with a pitch, blocking and in a stream. */
#include "program.h"

enum { BYTES = 4096 };

static unsigned char out[BYTES];

static void show_bytes(const char *label, CUdeviceptr memory)
{
    unsigned long sum = 0;
    CHECK(cuMemcpyDtoH(out, memory, BYTES));
    for (int i = 0; i < BYTES; i++)
        sum += out[i];
    printf("%s: first %u, last %u, sum %lu\n", label, out[0], out[BYTES - 1], sum);
}

int main(void)
{
    begin();
    CUdeviceptr memory = 0, pitched = 0;
    size_t pitch = 0;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemsetD8(memory, 0x11, BYTES));
    show_bytes("8 bits", memory);
    EXPECT(out[BYTES - 1] == 0x11);
    CHECK(cuMemsetD16(memory + 2, 0x2233, BYTES / 2 - 1));
    show_bytes("16 bits", memory);
    EXPECT(out[1] == 0x11 && out[2] == 0x33 && out[3] == 0x22);
    CHECK(cuMemsetD32(memory + 4, 0x44556677, BYTES / 4 - 2));
    show_bytes("32 bits", memory);
    EXPECT(out[4] == 0x77 && out[BYTES - 5] == 0x44 && out[BYTES - 4] == 0x33);

    CHECK(cuMemsetD8Async(memory, 1, 100, stream));
    CHECK(cuMemsetD16Async(memory + 100, 0x0203, 50, stream));
    CHECK(cuMemsetD32Async(memory + 200, 0x04050607, 25, stream));
    CHECK(cuStreamSynchronize(stream));
    show_bytes("in a stream", memory);
    EXPECT(out[99] == 1 && out[100] == 3 && out[200] == 7 && out[299] == 4);

    CHECK(cuMemAllocPitch(&pitched, &pitch, 64, 8, 4));
    EXPECT(pitch * 8 >= 64);
    CHECK(cuMemsetD2D8(pitched, pitch, 1, 64, 8));
    CHECK(cuMemsetD2D16(pitched, pitch, 0x0202, 16, 4));
    CHECK(cuMemsetD2D32(pitched + 4 * pitch, pitch, 0x03030303, 8, 4));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemsetD2D8Async(pitched, pitch, 9, 4, 8, stream));
    CHECK(cuMemsetD2D16Async(pitched + 4, pitch, 0x0808, 2, 8, stream));
    CHECK(cuMemsetD2D32Async(pitched + 8, pitch, 0x07070707, 1, 8, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned long sum = 0;
    for (size_t y = 0; y < 8; y++) {
        unsigned char row[64];
        CHECK(cuMemcpyDtoH(row, pitched + y * pitch, sizeof row));
        for (size_t x = 0; x < sizeof row; x++)
            sum += row[x];
    }
    /* 8 rows of 4 nines, 4 eights, 4 sevens; 4 rows of 20 twos and 32 ones; 4 rows of 20 threes and
     * 32 ones */
    EXPECT(sum == 8 * (36 + 32 + 28) + 4 * (40 + 32) + 4 * (60 + 32));
    show("sum of the rectangle", sum);

    CHECK(cuMemFree(pitched));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
