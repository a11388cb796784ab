/* A thousand launches over four streams, each launch on its own part of one allocation. */
#include "program.h"

enum { LAUNCHES = 1000, STREAMS = 4, PART = 64 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream streams[STREAMS];
    CUdeviceptr memory = 0;
    static uint32_t out[LAUNCHES * PART];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD8(memory, 0, sizeof out));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        CUdeviceptr part = memory + i * PART * sizeof(uint32_t);
        uint32_t start = i * PART, count = PART;
        void *parameters[] = {&part, &start, &count};
        launch(fill, 1, PART, streams[i % STREAMS], parameters);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuStreamSynchronize(streams[i]));
        CHECK(cuStreamDestroy(streams[i]));
    }
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32("all parts", out, LAUNCHES * PART);
    for (uint32_t i = 0; i < LAUNCHES * PART; i++)
        EXPECT_KERNEL(out[i] == i);
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
