// A result in page-locked memory is set asynchronously, and the check of each buffer waits for the
// stream. Without a buffer, no call has waited when the result is freed. The control waits itself.
// https://github.com/openxla/xla/issues/46093
// expect: memory-host-buffer-freed-while-pending
#include "program.h"

static void check_redzone(CUdeviceptr buffer, CUstream stream)
{
    uint8_t redzone[16];
    CHECK(cuMemcpyDtoHAsync(redzone, buffer, sizeof redzone, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void check_redzones(const CUdeviceptr *buffers, size_t count, CUstream stream)
{
    void *mismatches = NULL;
    CUdeviceptr address = 0;
    CHECK(cuMemHostAlloc(&mismatches, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&address, mismatches, 0));
    CHECK(cuMemsetD32Async(address, 0, 1024, stream));
    for (size_t i = 0; i < count; i++)
        check_redzone(buffers[i], stream);
#ifndef VIOLATE
    CHECK(cuStreamSynchronize(stream));
#endif
    CHECK(cuMemFreeHost(mismatches));
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_redzones(NULL, 0, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
