// The view of a column is built in a page-locked vector, copied to the device asynchronously, and
// the vector ends when the function returns. The control's copy is synchronous.
// https://github.com/NVIDIA/cudf/pull/22321
// expect: memory-host-buffer-freed-while-pending
#include "program.h"

enum { CHILDREN = 512 };

static void free_staging(uint64_t **staging)
{
    CHECK(cuMemFreeHost(*staging));
}

static CUdeviceptr create_view(CUdeviceptr column, CUstream stream)
{
    __attribute__((cleanup(free_staging))) uint64_t *staging = NULL;
    void *pinned = NULL;
    CUdeviceptr view = 0;
    const size_t size = CHILDREN * sizeof *staging;
    CHECK(cuMemAllocHost(&pinned, size));
    staging = pinned;
    for (size_t i = 0; i < CHILDREN; i++)
        staging[i] = column + 8 * i;
    CHECK(cuMemAlloc(&view, size));
    CHECK(cuMemcpyHtoDAsync(view, staging, size, stream));
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    return view;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr column = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&column, 8 * CHILDREN));
    CHECK(cuMemsetD8Async(column, 0, 8 * CHILDREN, stream));
    CUdeviceptr view = create_view(column, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(view));
    CHECK(cuMemFree(column));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
