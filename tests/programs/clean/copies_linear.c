/* Linear copies of every direction, blocking and in a stream, between inner offsets, between
 * contexts' addresses. */
#include "program.h"

enum { BYTES = 10000 };

int main(void)
{
    begin();
    static unsigned char in[BYTES], out[BYTES];
    for (int i = 0; i < BYTES; i++)
        in[i] = (unsigned char)(i * 7 + i / 256);
    CUdeviceptr a = 0, b = 0;
    CUstream stream = NULL;
    CHECK(cuMemAlloc(&a, BYTES));
    CHECK(cuMemAlloc(&b, BYTES));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD8(b, 0, BYTES));
    CHECK(cuCtxSynchronize());

    CHECK(cuMemcpyHtoD(a, in, BYTES));
    CHECK(cuMemcpyDtoD(b + 1000, a + 500, 3000));
    CHECK(cuMemcpyDtoH(out, b, BYTES));
    EXPECT(out[999] == 0 && memcmp(out + 1000, in + 500, 3000) == 0 && out[4000] == 0);
    printf("blocking copies agree\n");

    CHECK(cuMemcpyHtoDAsync(a + 1, in, BYTES - 1, stream));
    CHECK(cuMemcpyDtoDAsync(b, a + 1, BYTES - 1, stream));
    CHECK(cuMemcpyDtoHAsync(out, b, BYTES - 1, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(out, in, BYTES - 1) == 0);
    printf("copies in a stream agree\n");

    memset(out, 0, BYTES);
    CHECK(cuMemcpy(a, b, BYTES));                         /* device to device */
    /* device to host, by unified addressing */
    CHECK(cuMemcpy((CUdeviceptr)(uintptr_t)out, a, BYTES));
    EXPECT(memcmp(out, in, BYTES - 1) == 0);
    CHECK(cuMemcpyAsync(b, (CUdeviceptr)(uintptr_t)in, BYTES, stream));
    CHECK(cuMemcpyAsync(a, b, BYTES, stream));
    CHECK(cuStreamSynchronize(stream));
    memset(out, 0, BYTES);
    CHECK(cuMemcpyDtoH(out, a, BYTES));
    EXPECT(memcmp(out, in, BYTES) == 0);
    printf("unified copies agree\n");

    CHECK(cuMemsetD8(b, 0, BYTES));
    CHECK(cuMemcpyPeer(b, context, a, context, BYTES));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyPeerAsync(a, context, b, context, BYTES, stream));
    CHECK(cuStreamSynchronize(stream));
    memset(out, 0, BYTES);
    CHECK(cuMemcpyDtoH(out, b, BYTES));
    EXPECT(memcmp(out, in, BYTES) == 0);
    printf("copies within one context by the peer calls agree\n");

    unsigned long sum = 0;
    for (int i = 0; i < BYTES; i++)
        sum += out[i];
    show("sum", sum);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(a));
    CHECK(cuMemFree(b));
    end();
    return success();
}
