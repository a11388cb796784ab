/* Modules from PTX in memory: plain, with options and logs, behind a comment, from a cubin. */
#include "images.h"

enum { COUNT = 300 };

static void run(const char *label, CUmodule module)
{
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    uint32_t start = 5, count = COUNT, out[COUNT];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD32(memory, 0, COUNT));
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 2, 64, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32(label, out, COUNT);
    EXPECT_KERNEL(out[0] == 5 && out[COUNT - 1] == 5 + COUNT - 1);
    CHECK(cuMemFree(memory));
}

int main(void)
{
    begin();
    CUmodule module = NULL;
    CHECK(cuModuleLoadData(&module, PTX_FILL));
    run("plain", module);
    CHECK(cuModuleUnload(module));

    char commented[sizeof PTX_FILL + 64];
    snprintf(commented, sizeof commented, "\n\n// by hand\n/* still a comment */\n%s", PTX_FILL);
    CHECK(cuModuleLoadData(&module, commented));
    memset(commented, 0, sizeof commented); /* the image is not needed after the load */
    run("behind comments", module);
    CHECK(cuModuleUnload(module));

    static char info[2048], error[2048];
    CUjit_option options[] = {
        CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE, CU_JIT_MAX_REGISTERS,
        CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_WALL_TIME,
    };
    void *values[] = {
        info, (void *)sizeof info, error, (void *)sizeof error, (void *)1, (void *)32, (void *)3,
        NULL,
    };
    CHECK(cuModuleLoadDataEx(&module, PTX_FILL, 8, options, values));
    EXPECT((size_t)(uintptr_t)values[1] <= sizeof info
           && (size_t)(uintptr_t)values[3] <= sizeof error);
    run("with options", module);
    CHECK(cuModuleUnload(module));
    CHECK(cuModuleLoadDataEx(&module, PTX_FILL, 0, NULL, NULL));
    run("with no options", module);
    CHECK(cuModuleUnload(module));

    size_t size = 0;
    unsigned char *cubin = link_cubin(PTX_FILL, NULL, &size);
    CHECK(cuModuleLoadData(&module, cubin));
    free(cubin);
    run("from a cubin", module);
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
