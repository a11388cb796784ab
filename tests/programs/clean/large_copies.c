/* Copies at and around the sizes at which something may be cut in pieces: up to 8 MiB and a few
 * bytes, from odd addresses. */
#include "program.h"

#define MIB ((size_t)1 << 20)

static unsigned char pattern(size_t i)
{
    return (unsigned char)(i * 131 + (i >> 8) * 7 + (i >> 16));
}

int main(void)
{
    begin();
    const size_t most = 8 * MIB + 64;
    unsigned char *in = malloc(most), *out = malloc(most), *pinned = NULL;
    EXPECT(in != NULL && out != NULL);
    CHECK(cuMemAllocHost((void **)&pinned, most));
    for (size_t i = 0; i < most; i++)
        in[i] = pattern(i);
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, most));
    CHECK(cuMemsetD8(memory, 0, most));
    const size_t sizes[] = {
        1, 3, 4095, 4096, 4097, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB,
        2 * MIB + 1, 4 * MIB - 8, 4 * MIB, 4 * MIB + 8, 8 * MIB - 1, 8 * MIB, 8 * MIB + 3,
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = sizes[i], shift = i % 4;
        CHECK(cuMemcpyHtoD(memory + shift, in + shift, size));
        memset(out, 0, size);
        CHECK(cuMemcpyDtoH(out, memory + shift, size));
        EXPECT(memcmp(out, in + shift, size) == 0);
        memcpy(pinned, in + 5, size);
        CHECK(cuMemcpyHtoDAsync(memory, pinned, size, NULL));
        CHECK(cuStreamSynchronize(NULL));
        memset(pinned, 0, size);
        CHECK(cuMemcpyDtoHAsync(pinned, memory, size, NULL));
        CHECK(cuStreamSynchronize(NULL));
        EXPECT(memcmp(pinned, in + 5, size) == 0);
        unsigned long long sum = 0;
        for (size_t j = 0; j < size; j++)
            sum += pinned[j];
        printf("%zu bytes, sum %llu\n", size, sum);
    }
    CHECK(cuMemFree(memory));
    CHECK(cuMemFreeHost(pinned));
    free(out);
    free(in);
    end();
    return success();
}
