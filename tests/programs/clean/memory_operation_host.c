/* A stream waits for a value that the program itself writes into pinned memory. */
// replay-skips: cuStreamWaitValue32_v2
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr data = 0, flag_on_device = 0;
    void *flag = NULL;
    uint32_t value = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&data, sizeof value));
    CHECK(cuMemsetD32(data, 0, 1));
    CHECK(cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&flag_on_device, flag, 0));
    CHECK(cuCtxSynchronize());
    *(volatile uint32_t *)flag = 1;
    CHECK(cuStreamWaitValue32(stream, flag_on_device, 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuMemsetD32Async(data, 7, 1, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(&value, data, sizeof value));
    EXPECT(value == 7);
    show("data", value);
    CHECK(cuMemFreeHost(flag));
    CHECK(cuMemFree(data));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
