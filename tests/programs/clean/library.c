/* A library: kernels by name and listed, launched as CUkernel and as CUfunction, globals, module,
 * attributes, options. */
#include "program.h"

static void run(const char *label, CUfunction function, CUdeviceptr counter)
{
    CUdeviceptr out = 0;
    uint32_t values[4] = {0}, five = 5;
    CHECK(cuMemAlloc(&out, sizeof values));
    CHECK(cuMemsetD8(out, 0, sizeof values));
    CHECK(cuMemcpyHtoD(counter, &five, sizeof five));
    void *parameters[] = {&out};
    launch(function, 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(values, out, sizeof values));
    show_u32(label, values, 4);
    EXPECT_KERNEL(values[0] == 36 && values[3] == 126);
    CHECK(cuMemFree(out));
}

int main(void)
{
    begin();
    CUlibrary library = NULL, owner = NULL;
    CUkernel kernel = NULL, listed[4] = {0};
    CUfunction function = NULL;
    CUmodule module = NULL;
    unsigned count = 0;
    CHECK(cuLibraryLoadData(&library, PTX_GLOBALS, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernelCount(&count, library));
    EXPECT(count == 1);
    CHECK(cuLibraryEnumerateKernels(listed, 1, library));
    CHECK(cuLibraryGetKernel(&kernel, library, "use_globals"));
    EXPECT(kernel == listed[0]);
    const char *name = NULL;
    CHECK(cuKernelGetName(&name, kernel));
    printf("kernel %s\n", name);
    CHECK(cuKernelGetLibrary(&owner, kernel));
    EXPECT(owner == library);
    size_t offset = 99, size = 99;
    CHECK(cuKernelGetParamInfo(kernel, 0, &offset, &size));
    EXPECT(offset == 0 && size == 8);

    CUdeviceptr counter = 0, table = 0;
    CHECK(cuLibraryGetGlobal(&counter, &size, library, "counter"));
    EXPECT(size == 4);
    CHECK(cuLibraryGetGlobal(&table, NULL, library, "table"));
    CHECK(cuKernelGetFunction(&function, kernel));
    run("launched as a kernel", (CUfunction)kernel, counter);
    run("launched as its function", function, counter);

    int value = -1;
    CHECK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096, kernel,
                               device));
    CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel,
                               device));
    EXPECT(value == 4096);
    CHECK(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, device));
    CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    show("threads per block", value);

    CUdeviceptr by_module = 0;
    CHECK(cuLibraryGetModule(&module, library));
    CHECK(cuModuleGetGlobal(&by_module, NULL, module, "counter"));
    EXPECT(by_module == counter);
    CHECK(cuLibraryUnload(library));

    /* with JIT options and with the promise that the code stays where it is */
    CUjit_option jit[] = {CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL};
    void *jit_values[] = {(void *)32, (void *)4};
    CUlibraryOption promise[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *promise_values[] = {(void *)1};
    CHECK(cuLibraryLoadData(&library, PTX_GLOBALS, jit, jit_values, 2, promise, promise_values, 1));
    CHECK(cuLibraryGetKernel(&kernel, library, "use_globals"));
    CHECK(cuLibraryGetGlobal(&counter, NULL, library, "counter"));
    run("with options", (CUfunction)kernel, counter);
    CHECK(cuLibraryUnload(library));
    end();
    return success();
}
