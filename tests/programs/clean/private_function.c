/* A function that no recorded call returned, as when a library takes one from the driver's private
 * tables: here it is looked up in the driver's own library, past the recorder. A replay finds it by
 * module and name. */
// not-played: it calls the driver past the recorder, and the null driver is where play looks
#define _GNU_SOURCE
#include "program.h"
#include "unrecorded.h"

typedef CUresult (*GetFunction)(CUfunction *, CUmodule, const char *);

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_GLOBALS);
    CUfunction use = NULL;
    GetFunction get = (GetFunction)unrecorded("cuModuleGetFunction", cuModuleGetFunction);
    CHECK(get(&use, module, "use_globals"));
    int threads = 0;
    CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, use));
    EXPECT(threads > 0);
    uint32_t values[4] = {0};
    CUdeviceptr out = 0;
    CHECK(cuMemAlloc(&out, sizeof values));
    CHECK(cuMemsetD8(out, 0, sizeof values));
    void *parameters[] = {&out};
    launch(use, 1, 1, NULL, parameters);
    launch(use, 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(values, out, sizeof values));
    show_u32("by the kernel", values, 4);
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
