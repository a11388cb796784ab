// A device's default pool is destroyed; the control destroys a pool of its own.
// expect: memory-pool-misuse
#include "program.h"

int main(void)
{
    begin();
    CUmemoryPool pool = NULL;
#ifdef VIOLATE
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    MISUSE(cuMemPoolDestroy(pool));
#else
    CUmemPoolProps wanted = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CHECK(cuMemPoolCreate(&pool, &wanted));
    CHECK(cuMemPoolDestroy(pool));
#endif
    end();
    return success();
}
