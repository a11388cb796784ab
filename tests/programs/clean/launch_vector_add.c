/* The plain launch: vector_add over a grid stride, saxpy on floats, grids of three dimensions,
 * streams null and own. */
#include "program.h"

enum { COUNT = 100000 };

int main(void)
{
    begin();
    static uint32_t a[COUNT], b[COUNT], c[COUNT];
    static float x[COUNT], y[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        a[i] = i;
        b[i] = 3 * i + 7;
        x[i] = (float)(i % 100);
        y[i] = 1.0f;
    }
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction add = function_of(module, "vector_add"), saxpy = function_of(module, "saxpy");
    CUdeviceptr da = 0, db = 0, dc = 0;
    CHECK(cuMemAlloc(&da, sizeof a));
    CHECK(cuMemAlloc(&db, sizeof b));
    CHECK(cuMemAlloc(&dc, sizeof c));
    CHECK(cuMemcpyHtoD(da, a, sizeof a));
    CHECK(cuMemcpyHtoD(db, b, sizeof b));
    CHECK(cuMemsetD8(dc, 0, sizeof c));
    uint32_t count = COUNT;
    void *add_parameters[] = {&da, &db, &dc, &count};
    launch(add, 32, 256, NULL, add_parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(c, dc, sizeof c));
    show_u32("vector_add", c, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT_KERNEL(c[i] == 4 * i + 7);

    CHECK(cuMemcpyHtoD(da, x, sizeof x));
    CHECK(cuMemcpyHtoD(db, y, sizeof y));
    float factor = 0.5f;
    void *saxpy_parameters[] = {&count, &factor, &da, &db};
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuLaunchKernel(saxpy, 16, 1, 1, 128, 1, 1, 0, stream, saxpy_parameters, NULL));
    CHECK(cuMemcpyDtoHAsync(y, db, sizeof y, stream));
    CHECK(cuStreamSynchronize(stream));
    printf("saxpy: %.1f %.1f %.1f\n", y[0], y[50], y[COUNT - 1]);
    EXPECT_KERNEL(y[0] == 1.0f && y[50] == 26.0f && y[COUNT - 1] == 50.5f);

    CUmodule other = load_ptx(PTX_NOTHING);
    CHECK(cuLaunchKernel(function_of(other, "nothing"), 2, 3, 4, 8, 4, 2, 0, stream, NULL, NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(other));
    CHECK(cuMemFree(da));
    CHECK(cuMemFree(db));
    CHECK(cuMemFree(dc));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
