/* Makes a large trace: copies of incompressible bytes, each followed by ten thousand
 * small calls.
 *   large_trace MEBIBYTES     to the device in all, in copies of 32 MiB */
#include "program.h"

enum { PIECE = 32 << 20, CALLS = 10000 };

int main(int count, char **words)
{
    int mebibytes = count == 2 ? atoi(words[1]) : 0;
    if (mebibytes < PIECE >> 20) {
        fputs("large_trace MEBIBYTES (32 at least)\n", stderr);
        return 2;
    }
    begin();
    CUdeviceptr memory = 0;
    uint64_t *bytes = malloc(PIECE), state = 0x9e3779b97f4a7c15;
    if (bytes == NULL)
        return 1;
    CHECK(cuMemAlloc(&memory, PIECE));
    for (int piece = 0; piece < mebibytes / (PIECE >> 20); piece++) {
        for (size_t at = 0; at < PIECE / sizeof *bytes; at++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            bytes[at] = state;
        }
        CHECK(cuMemcpyHtoD(memory, bytes, PIECE));
        for (int call = 0; call < CALLS; call++) {
            CUdevice now;
            CHECK(cuCtxGetDevice(&now));
        }
    }
    CHECK(cuMemFree(memory));
    free(bytes);
    end();
    return 0;
}
