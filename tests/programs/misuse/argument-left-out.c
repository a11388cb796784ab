// The array of a launch has one pointer less than the kernel has parameters, and what follows it
// in memory is taken for the last one. The control passes all.
// https://github.com/paiml/aprender/pull/2060
// expect: exec-params-array-shape
// crashes: SIGSEGV
#include "program.h"

struct arguments {
#ifdef VIOLATE
    void *pointers[3];
#else
    void *pointers[4];
#endif
    uintptr_t count;
};

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUdeviceptr a = 0, b = 0, c = 0;
    uint32_t total = 64;
    CHECK(cuMemAlloc(&a, 256));
    CHECK(cuMemAlloc(&b, 256));
    CHECK(cuMemAlloc(&c, 256));
    CHECK(cuMemsetD32(a, 1, 64));
    CHECK(cuMemsetD32(b, 2, 64));
#ifdef VIOLATE
    struct arguments arguments = {{&a, &b, &c}, 3};
    EXPECT(total == 64);
#else
    struct arguments arguments = {{&a, &b, &c, &total}, 4};
#endif
    MISUSE(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, NULL, arguments.pointers, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(c));
    CHECK(cuMemFree(b));
    CHECK(cuMemFree(a));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
