/* The same handles over and over: modules, streams, events, link states and memory made and given
 * back a hundred times. */
// may: performance-module-reloaded performance-allocation-churn
#include "program.h"

int main(void)
{
    begin();
    uint64_t sum = 0;
    for (uint32_t round = 0; round < 100; round++) {
        CUmodule module = load_ptx(PTX_MARK);
        CUfunction mark = function_of(module, "mark");
        CUstream stream = NULL;
        CUevent event = NULL;
        CUdeviceptr memory = 0;
        uint32_t value = round;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CHECK(cuMemAlloc(&memory, 4096));
        CHECK(cuMemcpyHtoDAsync(memory, &value, sizeof value, stream));
        void *parameters[] = {&memory};
        launch(mark, 1, 1, stream, parameters);
        CHECK(cuEventRecord(event, stream));
        CHECK(cuEventSynchronize(event));
        CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
        EXPECT_KERNEL(value == 42);
        sum += value;
        CHECK(cuMemFree(memory));
        CHECK(cuEventDestroy(event));
        CHECK(cuStreamDestroy(stream));
        CHECK(cuModuleUnload(module));
        CUlinkState state = NULL;
        CHECK(cuLinkCreate(0, NULL, NULL, &state));
        CHECK(cuLinkDestroy(state));
    }
    show("sum", sum);
    end();
    return success();
}
