/* Copies 1 MiB to the device and back, as often as its argument says; no two of the copies have the
 * same bytes. */
#include "program.h"

enum { BYTES = 1 << 20 };

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    int rounds = atoi(argv[1]);
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
    }
    show("sum", sum);
    CHECK(cuMemFree(target));
    end();
    free(bytes);
    return success();
}
