/* Five programs in one, each with a mistake of host code that a macro plants, for the tests of play:
 *   WRONG_STRIDE     a copy of rows has the pitch of another image
 *   MISSING_COPY     the second input is not copied to the device
 *   KERNELS_SWAPPED  two kernels are launched in the other order
 *   WRONG_SIZE       an allocation has as many bytes as there should be elements
 *   STREAM_FREED     a copy is enqueued on a stream that has been destroyed */
#include "program.h"

enum { WIDTH = 16, ROWS = 8, COUNT = 256 };

static void copy_rows(void)
{
    static unsigned char image[ROWS][2 * WIDTH];
    for (int row = 0; row < ROWS; row++)
        for (int at = 0; at < 2 * WIDTH; at++)
            image[row][at] = (unsigned char)(row * 32 + at * 7);
    CUdeviceptr pixels = 0;
    CHECK(cuMemAlloc(&pixels, WIDTH * ROWS));
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = image, .srcPitch = sizeof image[0],
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = pixels, .dstPitch = WIDTH,
        .WidthInBytes = WIDTH, .Height = ROWS,
    };
#ifdef WRONG_STRIDE
    copy.srcPitch = WIDTH;
#endif
    CHECK(cuMemcpy2D(&copy));
    CHECK(cuMemFree(pixels));
}

static void add(CUmodule module)
{
    static uint32_t a[COUNT], b[COUNT], sum[COUNT];
    for (uint32_t at = 0; at < COUNT; at++) {
        a[at] = at;
        b[at] = 3 * at;
    }
    CUdeviceptr first = 0, second = 0, result = 0;
    CHECK(cuMemAlloc(&first, sizeof a));
    CHECK(cuMemAlloc(&second, sizeof b));
#ifdef WRONG_SIZE
    CHECK(cuMemAlloc(&result, COUNT));
#else
    CHECK(cuMemAlloc(&result, sizeof sum));
#endif
    CHECK(cuMemcpyHtoD(first, a, sizeof a));
#ifndef MISSING_COPY
    CHECK(cuMemcpyHtoD(second, b, sizeof b));
#endif
    uint32_t count = COUNT;
    void *parameters[] = {&first, &second, &result, &count};
    launch(function_of(module, "vector_add"), 1, COUNT, NULL, parameters);
    CHECK(cuMemcpyDtoH(sum, result, sizeof sum));
    show_u32("sum", sum, COUNT);
    CHECK(cuMemFree(first));
    CHECK(cuMemFree(second));
    CHECK(cuMemFree(result));
}

static void fill_and_scale(CUmodule module)
{
    CUdeviceptr x = 0, y = 0;
    CHECK(cuMemAlloc(&x, COUNT * sizeof(float)));
    CHECK(cuMemAlloc(&y, COUNT * sizeof(float)));
    CHECK(cuMemsetD32(y, 0, COUNT));
    uint32_t count = COUNT, value = 0x3f800000;
    float factor = 2.0f;
    void *of_fill[] = {&x, &value, &count}, *of_saxpy[] = {&count, &factor, &x, &y};
    CUfunction fill = function_of(module, "fill"), saxpy = function_of(module, "saxpy");
#ifdef KERNELS_SWAPPED
    launch(saxpy, 1, COUNT, NULL, of_saxpy);
    launch(fill, 1, COUNT, NULL, of_fill);
#else
    launch(fill, 1, COUNT, NULL, of_fill);
    launch(saxpy, 1, COUNT, NULL, of_saxpy);
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(x));
    CHECK(cuMemFree(y));
}

static void use_streams(void)
{
    CUstream first = NULL, second = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    uint32_t value = 0;
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemsetD32Async(memory, 5, 1, first));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuStreamDestroy(first));
#ifdef STREAM_FREED
    CUstream used = first;
#else
    CUstream used = second;
#endif
    CHECK(cuMemcpyDtoHAsync(&value, memory, sizeof value, used));
    CHECK(cuStreamSynchronize(second));
    show("value", value);
    CHECK(cuStreamDestroy(second));
    CHECK(cuMemFree(memory));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    copy_rows();
    add(module);
    fill_and_scale(module);
    use_streams();
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
