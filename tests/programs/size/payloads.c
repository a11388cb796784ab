/* Copies 1 MiB to the device and back, as often as its argument says; no two of the copies have the
 * same bytes. With a second argument, it also copies that many of the bytes back each time. */
#include "program.h"

enum { BYTES = 1 << 20 };

int main(int argc, char **argv)
{
    EXPECT(argc == 2 || argc == 3);
    int rounds = atoi(argv[1]), some = argc == 3 ? atoi(argv[2]) : 0;
    EXPECT(some <= BYTES);
    unsigned char *bytes = malloc(BYTES);
    EXPECT(bytes != NULL);
    begin();
    CUdeviceptr target = 0;
    CHECK(cuMemAlloc(&target, BYTES));
    unsigned long long sum = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < BYTES; i++)
            bytes[i] = (unsigned char)(i * 7 + i / 256 + round);
        CHECK(cuMemcpyHtoD(target, bytes, BYTES));
        CHECK(cuMemsetD8(target, 0x55, BYTES / 2));
        CHECK(cuMemcpyDtoH(bytes, target, BYTES));
        sum += bytes[BYTES - 1];
        if (some > 0)
            CHECK(cuMemcpyDtoHAsync(bytes, target, some, NULL));
    }
    show("sum", sum);
    CHECK(cuMemFree(target));
    end();
    free(bytes);
    return success();
}
