/* Modules and libraries from files that the program writes, and removes right after the load. */
#include "program.h"

static void run(CUmodule module, const char *label)
{
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    uint32_t value = 1;
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemcpyHtoD(memory, &value, sizeof value));
    void *parameters[] = {&memory};
    launch(mark, 1, 1, NULL, parameters);
    CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
    EXPECT_KERNEL(value == 42);
    show(label, value);
    CHECK(cuMemFree(memory));
}

int main(void)
{
    begin();
    char path[64];
    CUmodule module = NULL;
    write_temporary(path, PTX_MARK, strlen(PTX_MARK)); /* a file needs no NUL */
    CHECK(cuModuleLoad(&module, path));
    EXPECT(unlink(path) == 0);
    run(module, "module from a file");
    CHECK(cuModuleUnload(module));

    CUlibrary library = NULL;
    write_temporary(path, PTX_MARK, strlen(PTX_MARK));
    CHECK(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetModule(&module, library));
    EXPECT(unlink(path) == 0);
    run(module, "library from a file");
    CHECK(cuLibraryUnload(library));
    end();
    return success();
}
