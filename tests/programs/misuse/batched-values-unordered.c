// A batch of memory operations resets a counter that another stream still clears with its buffer; the
// control lets the batch wait for that.
// expect: memory-race-cross-stream
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUevent cleared = NULL;
    CUdeviceptr buffer = 0;
    uint32_t counter = 0;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&cleared, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&buffer, 4096));
    CHECK(cuMemsetD8Async(buffer, 0, 4096, first));
#ifndef VIOLATE
    CHECK(cuEventRecord(cleared, first));
    CHECK(cuStreamWaitEvent(second, cleared, 0));
#endif
    CUstreamBatchMemOpParams batch[2];
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < 2; i++) {
        batch[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        batch[i].writeValue.address = buffer + (size_t)i * 4;
        batch[i].writeValue.value = 5;
        batch[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    CHECK(cuStreamBatchMemOp(second, 2, batch, 0));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&counter, buffer, sizeof counter));
#ifndef VIOLATE
    EXPECT(counter == 5);
#endif
    CHECK(cuMemFree(buffer));
    CHECK(cuEventDestroy(cleared));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
