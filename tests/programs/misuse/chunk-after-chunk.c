// A solver works through its input in chunks, and waits after the kernel of each because the next
// one uses the workspace again, although kernels of one stream run in order anyway. The control
// waits once.
// https://github.com/zoeyzyhu/pydisort/pull/180
// expect: performance-sync-in-hot-loop
#include "program.h"

enum { CHUNKS = 96, CHUNK = 256 };

static void solve(CUfunction fill, CUdeviceptr workspace, CUstream stream)
{
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        uint32_t start = chunk * CHUNK, count = CHUNK;
        void *parameters[] = {&workspace, &start, &count};
        launch(fill, CHUNK / 32, 32, stream, parameters);
#ifdef VIOLATE
        CHECK(cuStreamSynchronize(stream));
#endif
    }
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUstream stream = NULL;
    CUdeviceptr workspace = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&workspace, CHUNK * sizeof(uint32_t)));
    solve(function_of(module, "fill"), workspace, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(workspace));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
