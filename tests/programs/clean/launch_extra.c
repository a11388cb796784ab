/* Parameters in one buffer by the `extra` argument: laid out as cuFuncGetParamInfo says, with the
 * terminator. */
#include "program.h"

enum { COUNT = 777 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr memory = 0;
    uint32_t start = 1000, count = COUNT, out[COUNT];
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD32(memory, 0, COUNT));
    const void *values[] = {&memory, &start, &count};
    unsigned char buffer[64] = {0};
    size_t used = 0;
    for (size_t i = 0; i < 3; i++) {
        size_t offset = 0, size = 0;
        CHECK(cuFuncGetParamInfo(fill, i, &offset, &size));
        EXPECT(offset + size <= sizeof buffer);
        memcpy(buffer + offset, values[i], size);
        used = offset + size;
    }
    EXPECT(used == 16);
    void *extra[] = {
        CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &used,
        CU_LAUNCH_PARAM_END,
    };
    CHECK(cuLaunchKernel(fill, 4, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
    memset(buffer, 0xEE, sizeof buffer); /* parameters are copied by the launch */
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32("fill", out, COUNT);
    EXPECT_KERNEL(out[0] == 1000 && out[COUNT - 1] == 1000 + COUNT - 1);
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
