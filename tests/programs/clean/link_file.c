/* Link inputs from a file and from a fat binary in memory. */
#include "images.h"

int main(void)
{
    begin();
    char path[64];
    write_temporary(path, PTX_LINK_CALLER, strlen(PTX_LINK_CALLER));
    size_t fatbin_size = 0, size = 0;
    unsigned char *fatbin = make_ptx_fatbin(PTX_LINK_CALLEE, &fatbin_size);
    CUlinkState state = NULL;
    void *cubin = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    EXPECT(unlink(path) == 0);
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, fatbin, fatbin_size, "callee.fatbin", 0,
                        NULL, NULL));
    free(fatbin); /* inputs are not needed after the call */
    CHECK(cuLinkComplete(state, &cubin, &size));
    CUmodule module = NULL;
    CHECK(cuModuleLoadData(&module, cubin));
    CHECK(cuLinkDestroy(state));

    enum { COUNT = 64 };
    CUdeviceptr memory = 0;
    uint32_t count = COUNT, out[COUNT];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD32(memory, 0, COUNT));
    void *parameters[] = {&memory, &count};
    launch(function_of(module, "scaled"), 1, 64, NULL, parameters);
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32("scaled", out, COUNT);
    EXPECT_KERNEL(out[COUNT - 1] == 3 * (COUNT - 1) + 1);
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
