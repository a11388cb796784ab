/* Prints where the driver places memory of each kind: played, it is where the recording had it. */
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr large = 0, first = 0, second = 0, managed = 0, reserved = 0;
    void *host = NULL;
    CHECK(cuMemAlloc(&large, 5 << 20));
    CHECK(cuMemAlloc(&first, 4096));
    CHECK(cuMemAlloc(&second, 512));
    CHECK(cuMemFree(first));
    CHECK(cuMemAlloc(&first, 1024));
    CHECK(cuMemHostAlloc(&host, 8192, 0));
    CHECK(cuMemAllocManaged(&managed, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAddressReserve(&reserved, 2 << 20, 0, 0, 0));
    printf("%llx %llx %llx %p %llx %llx\n", large, first, second, host, managed, reserved);
    CHECK(cuMemAddressFree(reserved, 2 << 20));
    CHECK(cuMemFree(managed));
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree(first));
    CHECK(cuMemFree(second));
    CHECK(cuMemFree(large));
    end();
    return success();
}
