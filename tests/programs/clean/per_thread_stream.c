/* The variants for the per-thread default stream (_ptsz, _ptds), called by their exported names,
 * and the two stream constants. */
#include "program.h"

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t size);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemsetD32_v2_ptds(CUdeviceptr to, unsigned value, size_t count);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t size, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                             unsigned bx, unsigned by, unsigned bz, unsigned shared,
                             CUstream stream, void **parameters, void **extra);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags);

enum { COUNT = 512 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr a = 0, b = 0;
    CUevent event = NULL;
    uint32_t start = 9, count = COUNT, out[COUNT] = {0}, in[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = 2 * i;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&a, sizeof out));
    CHECK(cuMemAlloc(&b, sizeof out));
    CHECK(cuMemsetD32_v2_ptds(a, 0, COUNT));
    void *parameters[] = {&a, &start, &count};
    /* null is this thread's stream here */
    CHECK(cuLaunchKernel_ptsz(fill, 2, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuEventRecord_ptsz(event, NULL));
    CHECK(cuStreamWaitEvent_ptsz(CU_STREAM_PER_THREAD, event, 0));
    CHECK(cuMemcpyDtoD_v2_ptds(b, a, sizeof out));
    CHECK(cuMemcpyDtoHAsync_v2_ptsz(out, b, sizeof out, NULL));
    CHECK(cuStreamSynchronize_ptsz(NULL));
    CHECK(cuStreamQuery_ptsz(NULL));
    show_u32("fill", out, COUNT);
    EXPECT_KERNEL(out[COUNT - 1] == 9 + COUNT - 1);

    CHECK(cuMemcpyHtoD_v2_ptds(a, in, sizeof in));
    CHECK(cuMemcpyHtoDAsync_v2_ptsz(b, in, sizeof in, CU_STREAM_PER_THREAD));
    CHECK(cuMemsetD8Async_ptsz(b, 0xFF, 4, NULL));
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD)); /* the same stream by its constant */
    CHECK(cuMemcpyDtoH_v2_ptds(out, b, sizeof out));
    EXPECT(out[0] == ~0u && out[1] == 2 && out[COUNT - 1] == 2 * (COUNT - 1));
    show_u32("copies", out, COUNT);

    CHECK(cuLaunchKernel(fill, 2, 1, 1, 128, 1, 1, 0, CU_STREAM_LEGACY, parameters, NULL));
    CHECK(cuStreamSynchronize(CU_STREAM_LEGACY));
    CHECK(cuMemcpyDtoH(out, a, sizeof out));
    EXPECT_KERNEL(out[1] == 10);
    show_u32("legacy stream", out, COUNT);
    CHECK(cuEventDestroy(event));
    CHECK(cuMemFree(a));
    CHECK(cuMemFree(b));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
