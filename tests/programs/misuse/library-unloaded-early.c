// A library is unloaded by the destructor of the object that launched its kernel, as module tests of
// https://github.com/oneapi-src/SYCLomatic-test/pull/230 did; the control waits first.
// expect: module-unload-work-pending
#include "program.h"

struct operation {
    CUlibrary library;
    CUkernel kernel;
};

static void run(struct operation *operation, CUdeviceptr memory, CUstream stream)
{
    uint32_t start = 1, count = 1 << 16;
    void *parameters[] = {&memory, &start, &count};
    CHECK(cuLibraryLoadData(&operation->library, PTX_FILL, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&operation->kernel, operation->library, "fill"));
    launch((CUfunction)operation->kernel, 1, 32, stream, parameters);
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    struct operation operation = {0};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, (size_t)4 << 16));
    run(&operation, memory, stream);
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuLibraryUnload(operation.library));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
