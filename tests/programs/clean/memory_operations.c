/* Stream memory operations: a value written and waited for by two streams. */
#include "program.h"

int main(void)
{
    begin();
    CUstream writer = NULL, waiter = NULL;
    CUdeviceptr flag = 0, data = 0;
    uint32_t value = 0;
    CHECK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&flag, sizeof value));
    CHECK(cuMemAlloc(&data, sizeof value));
    CHECK(cuMemsetD32(flag, 0, 1));
    CHECK(cuMemsetD32(data, 0, 1));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemsetD32Async(data, 77, 1, writer));
    CHECK(cuStreamWriteValue32(writer, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    (void)SUPPORTED(cuStreamWaitValue32(waiter, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuStreamSynchronize(writer));
    CHECK(cuStreamSynchronize(waiter));
    CHECK(cuMemcpyDtoH(&value, flag, sizeof value));
    EXPECT(value == 1);
    show("flag", value);
    CHECK(cuMemcpyDtoH(&value, data, sizeof value));
    EXPECT(value == 77);
    show("data", value);
    CHECK(cuMemFree(data));
    CHECK(cuMemFree(flag));
    CHECK(cuStreamDestroy(waiter));
    CHECK(cuStreamDestroy(writer));
    end();
    return success();
}
