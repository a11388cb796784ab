/* A structure passed by value, with a device address and padding inside; by kernelParams and by
 * extra. */
#include "program.h"

struct arguments {
    CUdeviceptr out;
    uint32_t a;
    uint16_t b;
    uint8_t c;
    int64_t d;
    float e;
};

static void check(const char *label, CUdeviceptr memory)
{
    uint32_t values[5];
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(values, memory, sizeof values));
    printf("%s: %u %u %u %u %u\n", label, values[0], values[1], values[2], values[3], values[4]);
    EXPECT_KERNEL(values[0] == 70000 && values[1] == 60000 && values[2] == 200 && values[3] == 123
                  && values[4] == 0x40200000);
    CHECK(cuMemsetD8(memory, 0, sizeof values));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_BY_STRUCT);
    CUfunction by_struct = function_of(module, "by_struct");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 20));
    CHECK(cuMemsetD8(memory, 0, 20));
    struct arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.out = memory;
    arguments.a = 70000;
    arguments.b = 60000;
    arguments.c = 200;
    arguments.d = 123;
    arguments.e = 2.5f;
    EXPECT(sizeof arguments == 32);
    void *parameters[] = {&arguments};
    launch(by_struct, 1, 1, NULL, parameters);
    check("kernelParams", memory);
    size_t size = sizeof arguments;
    void *extra[] = {
        CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
        CU_LAUNCH_PARAM_END,
    };
    CHECK(cuLaunchKernel(by_struct, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    check("extra", memory);
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
