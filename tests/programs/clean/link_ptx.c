/* Two PTX inputs linked, the cubin loaded before the state is destroyed, and a copy of it loaded
 * after. */
#include "images.h"

enum { COUNT = 500 };

static void run(const char *label, CUmodule module)
{
    CUfunction scaled = function_of(module, "scaled");
    CUdeviceptr memory = 0;
    uint32_t count = COUNT, out[COUNT];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD32(memory, 0, COUNT));
    void *parameters[] = {&memory, &count};
    launch(scaled, 2, 128, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32(label, out, COUNT);
    EXPECT_KERNEL(out[0] == 1 && out[COUNT - 1] == 3 * (COUNT - 1) + 1);
    CHECK(cuMemFree(memory));
}

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLER,
                        sizeof PTX_LINK_CALLER, "caller", 0, NULL, NULL));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLEE,
                        sizeof PTX_LINK_CALLEE, NULL, 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    EXPECT(cubin != NULL && size > 64 && memcmp(cubin, "\177ELF", 4) == 0);
    CUmodule module = NULL;
    CHECK(cuModuleLoadData(&module, cubin));
    CHECK(cuLinkDestroy(state)); /* the module does not need the cubin any more */
    run("loaded first", module);
    CHECK(cuModuleUnload(module));

    unsigned char *copy = link_cubin(PTX_LINK_CALLER, PTX_LINK_CALLEE, &size);
    CHECK(cuModuleLoadData(&module, copy));
    free(copy);
    run("a copy, loaded later", module);
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
