// A function that launches a kernel waits for the stream and for the device before it returns, and
// is called for each layer. The control leaves both waits to the caller.
// https://github.com/HazyResearch/ThunderKittens/pull/129
// expect: performance-sync-in-hot-loop
#include "program.h"

enum { LAYERS = 100 };

static void attend(CUfunction function, CUdeviceptr layer, CUstream stream)
{
    uint32_t start = 0, count = 256;
    void *parameters[] = {&layer, &start, &count};
    launch(function, 2, 128, stream, parameters);
#ifdef VIOLATE
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxSynchronize());
#endif
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    CUdeviceptr layers = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&layers, LAYERS * 1024));
    for (int i = 0; i < LAYERS; i++)
        attend(fill, layers + (CUdeviceptr)i * 1024, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(layers));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
