/* A kernel that allocates on the heap of the device, and frees. */
#include "program.h"

/* heap(out): *out = 42, through a block of the heap. */
PTX_TEXT PTX_HEAP[] = PTX_HEAD
    ".extern .func (.param .b64 result) malloc(.param .b64 size);\n"
    ".extern .func free(.param .b64 address);\n"
    ".visible .entry heap(.param .u64 out)\n{\n"
    " .reg .b64 %out, %size, %block;\n .reg .b32 %value;\n"
    " ld.param.u64 %out, [out];\n"
    " cvta.to.global.u64 %out, %out;\n"
    " mov.u64 %size, 16;\n"
    " {\n .param .b64 bytes;\n st.param.b64 [bytes], %size;\n .param .b64 block;\n"
    " call.uni (block), malloc, (bytes);\n ld.param.b64 %block, [block];\n }\n"
    " mov.u32 %value, 42;\n"
    " st.u32 [%block], %value;\n"
    " ld.u32 %value, [%block];\n"
    " {\n .param .b64 freed;\n st.param.b64 [freed], %block;\n"
    " call.uni free, (freed);\n }\n"
    " st.global.u32 [%out], %value;\n"
    " ret;\n}\n";

int main(void)
{
    begin();
    CUdeviceptr out = 0;
    uint32_t value = 0;
    CHECK(cuMemAlloc(&out, sizeof value));
    CHECK(cuMemsetD8(out, 0, sizeof value));
    CUmodule module = load_ptx(PTX_HEAP);
    void *parameters[] = {&out};
    launch(function_of(module, "heap"), 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&value, out, sizeof value));
    show("by the heap", value);
    EXPECT_KERNEL(value == 42);
    CHECK(cuModuleUnload(module));
    CHECK(cuMemFree(out));
    end();
    return success();
}
