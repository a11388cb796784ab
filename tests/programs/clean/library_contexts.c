/* One library in two contexts: its kernel runs in each, on each context's own variable. */
#include "program.h"

int main(void)
{
    begin();
    (void)driver_runs_kernels();
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUcontext other = NULL;
    CHECK(cuCtxCreate(&other, NULL, 0, device));
    CHECK(cuLibraryLoadData(&library, PTX_GLOBALS, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "use_globals"));
    CUcontext contexts[] = {context, other};
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CUdeviceptr counter = 0, out = 0;
        uint32_t start = 100 * (uint32_t)(i + 1), value = 0, values[4] = {0};
        CHECK(cuLibraryGetGlobal(&counter, NULL, library, "counter"));
        CHECK(cuMemcpyHtoD(counter, &start, sizeof start));
        CHECK(cuMemAlloc(&out, sizeof values));
        CHECK(cuMemsetD8(out, 0, sizeof values));
        void *parameters[] = {&out};
        launch((CUfunction)kernel, 1, 1, NULL, parameters);
        CHECK(cuCtxSynchronize());
        CHECK(cuMemcpyDtoH(&value, counter, sizeof value));
        CHECK(cuMemcpyDtoH(values, out, sizeof values));
        EXPECT_KERNEL(value == start + 1 && values[0] == start + 31);
        show("counter", value);
        CHECK(cuMemFree(out));
    }
    CHECK(cuLibraryUnload(library));
    CHECK(cuCtxDestroy(other));
    end();
    return success();
}
