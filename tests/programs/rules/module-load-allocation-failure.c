// A load runs out of memory and its output is used all the same; the control frees memory and loads
// again.
// expect: module-load-allocation-failure
// may: errors-result-ignored
// needs: a driver that limits memory to the device's
#include "program.h"

static const char HUGE_MODULE[] = PTX_HEAD
    ".visible .global .align 16 .b8 huge[4294967280];\n"
    ".visible .entry use_huge()\n{\n"
    " .reg .b32 %v;\n"
    " ld.global.u32 %v, [huge];\n"
    " add.u32 %v, %v, 1;\n"
    " st.global.u32 [huge], %v;\n"
    " ret;\n}\n";

int main(void)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* before cuInit: allocate at the load */
    begin();
    /* fill the device until two gigabytes are left, then load a module whose variable has four */
    size_t left = 0, total = 0;
    CHECK(cuMemGetInfo(&left, &total));
    const size_t spare = (size_t)2 << 30;
    CUdeviceptr block = 0;
    size_t size = left > spare ? left - spare : 0;
    while (size != 0 && cuMemAlloc(&block, size) != CUDA_SUCCESS)
        size -= size / 16 + 1;
    CUmodule module = NULL;
#ifdef VIOLATE
    CUfunction function = NULL;
    CUresult result = cuModuleLoadData(&module, HUGE_MODULE);
    MISUSE(cuModuleGetFunction(&function, module, "use_huge")); /* the output of the failed load */
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    CUresult result = cuModuleLoadData(&module, HUGE_MODULE);
    if (result != CUDA_SUCCESS) {
        if (block != 0)
            CHECK(cuMemFree(block));
        block = 0;
        CHECK(cuModuleLoadData(&module, PTX_FILL)); /* the small version */
    }
    CHECK(cuModuleUnload(module));
#endif
    if (block != 0)
        CHECK(cuMemFree(block));
    end();
    return success();
}
