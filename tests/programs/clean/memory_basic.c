/* Device memory: allocation, alignment, pitch, range of an inner address, free memory, many
 * blocks. */
#include "program.h"

int main(void)
{
    begin();
    size_t free_before = 0, free_after = 0, total = 0;
    CHECK(cuMemGetInfo(&free_before, &total));
    EXPECT(free_before <= total && total > 0);

    static const size_t SIZES[] = {1, 255, 256, 4096, 1 << 20, (2 << 20) + 1, 33 << 20};
    enum { COUNT = sizeof SIZES / sizeof SIZES[0] };
    CUdeviceptr blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK(cuMemAlloc(&blocks[i], SIZES[i]));
        EXPECT(blocks[i] != 0 && blocks[i] % 256 == 0);
        CHECK(cuMemsetD8(blocks[i], i + 1, SIZES[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        unsigned char last = 0;
        CUdeviceptr base = 0;
        size_t size = 0;
        CHECK(cuMemGetAddressRange(&base, &size, blocks[i] + SIZES[i] / 2));
        EXPECT(base == blocks[i] && size >= SIZES[i]);
        CHECK(cuMemGetAddressRange(NULL, &size, blocks[i]));
        CHECK(cuMemGetAddressRange(&base, NULL, blocks[i]));
        CHECK(cuMemcpyDtoH(&last, blocks[i] + SIZES[i] - 1, 1));
        EXPECT(last == i + 1);
        printf("%zu bytes hold %d\n", SIZES[i], last);
    }
    for (int i = COUNT - 1; i >= 0; i--)
        CHECK(cuMemFree(blocks[i]));

    static const unsigned ELEMENTS[] = {4, 8, 16};
    for (int i = 0; i < 3; i++) {
        CUdeviceptr pitched = 0;
        size_t pitch = 0;
        CHECK(cuMemAllocPitch(&pitched, &pitch, 100, 10, ELEMENTS[i]));
        EXPECT(pitch >= 100 && pitch % ELEMENTS[i] == 0);
        printf("rows of 100 bytes, elements of %u: pitch %zu\n", ELEMENTS[i], pitch);
        CHECK(cuMemsetD2D8(pitched, pitch, 7, 100, 10));
        CHECK(cuMemFree(pitched));
    }
    CHECK(cuMemGetInfo(&free_after, &total));
    end();
    return success();
}
