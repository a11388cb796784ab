// A kernel gets the address of freed memory (and does not touch it); the control frees it after the
// launch is over.
// expect: memory-use-after-free-kernel-argument
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    uint32_t start = 0, count = 32;
    CHECK(cuMemAlloc(&memory, 4096));
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, 32, NULL, parameters); /* shows that the first parameter is an address */
    CHECK(cuCtxSynchronize());
    count = 0;
#ifdef VIOLATE
    CHECK(cuMemFree(memory));
    launch(fill, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
#else
    launch(fill, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
