// Work in the legacy default stream between that of two blocking streams; the control has a stream
// of its own for it.
// expect: performance-default-stream-serialization
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory[3];
    CUstream streams[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; i++) {
        CHECK(cuMemAlloc(&memory[i], 4096));
        if (i != 1)
            CHECK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
    }
#ifndef VIOLATE
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
#endif
    for (int i = 0; i < 180; i++) {
        uint32_t value = 1, count = 1024;
        void *parameters[] = {&memory[i % 3], &value, &count};
        launch(fill, 4, 256, streams[i % 3], parameters);
    }
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < 3; i++) {
        CHECK(cuMemFree(memory[i]));
        if (streams[i] != NULL)
            CHECK(cuStreamDestroy(streams[i]));
    }
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
