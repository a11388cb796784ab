// Two kernels and a copy use the same memory in three streams; the control orders them by events.
// expect: memory-race-cross-stream
#include "program.h"

enum { COUNT = 64, BYTES = COUNT * 4 };

/* the null driver knows the kernel by its name */
static const char mix[] = PTX_HEAD
    ".visible .entry cutape_mix(.param .u64 out, .param .u64 in, .param .u32 n, .param .u32 seed)\n"
    "{\n .reg .b64 %out;\n .reg .b32 %value, %seed;\n"
    " ld.param.u64 %out, [out];\n cvta.to.global.u64 %out, %out;\n ld.param.u32 %seed, [seed];\n"
    " ld.global.u32 %value, [%out];\n mad.lo.u32 %value, %value, 3, %seed;\n"
    " st.global.u32 [%out], %value;\n ret;\n}\n";

int main(void)
{
    begin();
    CUstream streams[3];
    CUevent event = NULL;
    CUdeviceptr memory = 0, other = 0;
    uint32_t *values = NULL, count = COUNT, seeds[2] = {1, 2};
    CUmodule module = load_ptx(mix);
    CUfunction kernel = function_of(module, "cutape_mix");
    for (int i = 0; i < 3; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemAlloc(&other, BYTES));
    CHECK(cuMemAllocHost((void **)&values, BYTES));
    CHECK(cuMemsetD32(memory, 7, COUNT));
    CHECK(cuMemsetD32(other, 5, COUNT));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        void *parameters[] = {&memory, &other, &count, &seeds[i]};
        launch(kernel, 1, 1, streams[i], parameters);
#ifndef VIOLATE
        CHECK(cuEventRecord(event, streams[i]));
        CHECK(cuStreamWaitEvent(streams[i + 1], event, 0));
#endif
    }
    CHECK(cuMemcpyDtoHAsync(values, memory, BYTES, streams[2]));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(values));
    CHECK(cuMemFree(other));
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(event));
    for (int i = 0; i < 3; i++)
        CHECK(cuStreamDestroy(streams[i]));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
