/* Memory operations of a stream, in 32 and 64 bits, one by one and as a batch. */
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr words = 0;
    uint64_t values[4] = {0};
    int wide = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&words, sizeof values));
    CHECK(cuMemsetD8(words, 0, sizeof values));
    CHECK(cuCtxSynchronize());

    CUstreamBatchMemOpParams batch[3];
    memset(batch, 0, sizeof batch);
    batch[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[0].writeValue.address = words;
    batch[0].writeValue.value = 5;
    batch[0].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    batch[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    batch[1].waitValue.address = words;
    batch[1].waitValue.value = 5;
    batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    batch[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[2].writeValue.address = words + 8;
    batch[2].writeValue.value = 6;
    batch[2].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    CHECK(cuStreamBatchMemOp(stream, 3, batch, 0));

    CHECK(cuDeviceGetAttribute(&wide, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device));
    if (wide) {
        CHECK(cuStreamWriteValue64(stream, words + 16, 0x100000007, CU_STREAM_WRITE_VALUE_DEFAULT));
        CHECK(cuStreamWaitValue64(stream, words + 16, 0x100000000, CU_STREAM_WAIT_VALUE_GEQ));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(values, words, sizeof values));
    EXPECT(values[0] == 5 && values[1] == 6 && values[2] == (wide ? 0x100000007 : 0));
    printf("values: %u %u %u\n", (unsigned)values[0], (unsigned)values[1], (unsigned)values[2]);
    CHECK(cuMemFree(words));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
