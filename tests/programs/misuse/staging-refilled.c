// K and V go to the device through one pinned buffer, which is filled with V while the copy of K
// may still read it; the control has a buffer for each.
// https://github.com/1bit-MONSTER/1bit-MONSTER/pull/2436
// expect: memory-race-host-access
#include "program.h"

enum { BYTES = 2048 };

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr k_cache = 0, v_cache = 0;
    void *k_staging = NULL, *v_staging = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&k_cache, BYTES));
    CHECK(cuMemAlloc(&v_cache, BYTES));
    CHECK(cuMemAllocHost(&k_staging, BYTES));
    CHECK(cuMemAllocHost(&v_staging, BYTES));
#ifdef VIOLATE
    memset(k_staging, 1, BYTES);
    CHECK(cuMemcpyHtoDAsync(k_cache, k_staging, BYTES, stream));
    memset(k_staging, 2, BYTES);
    CHECK(cuMemcpyHtoDAsync(v_cache, k_staging, BYTES, stream));
#else
    memset(k_staging, 1, BYTES);
    memset(v_staging, 2, BYTES);
    CHECK(cuMemcpyHtoDAsync(k_cache, k_staging, BYTES, stream));
    CHECK(cuMemcpyHtoDAsync(v_cache, v_staging, BYTES, stream));
#endif
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost(v_staging));
    CHECK(cuMemFreeHost(k_staging));
    CHECK(cuMemFree(v_cache));
    CHECK(cuMemFree(k_cache));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
