// An allocation fails, nobody looks at the result, and a kernel gets the pointer that was not
// written. The control asks for less.
// expect: errors-result-ignored
// null-driver: CUTAPE_NULL_FAIL=cuStreamSynchronize@*=700
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    uint32_t start = 1, count = 64;
#ifdef VIOLATE
    cuMemAlloc(&memory, (size_t)1 << 60);
#else
    CHECK(cuMemAlloc(&memory, 256));
#endif
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, 64, NULL, parameters);
#ifdef VIOLATE
    printf("%s\n", result_name(cuStreamSynchronize(NULL)));
#else
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
#endif
    return success();
}
