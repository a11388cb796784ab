/* cuLaunchKernelEx: without attributes, with priority, cooperative, with several at once, and with
 * parameters in `extra`. */
#include "program.h"

enum { COUNT = 2048 };

static CUdeviceptr memory;
static uint32_t out[COUNT];

static void check(const char *label, uint32_t start)
{
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32(label, out, COUNT);
    EXPECT_KERNEL(out[0] == start && out[COUNT - 1] == start + COUNT - 1);
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUstream stream = NULL;
    int least = 0, greatest = 0, cooperative = 0;
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(cuDeviceGetAttribute(&cooperative, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD32(memory, 0, COUNT));
    CHECK(cuCtxSynchronize());
    uint32_t start = 1, count = COUNT;
    void *parameters[] = {&memory, &start, &count};
    CUlaunchConfig config = {
        .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
        .blockDimZ = 1, .hStream = stream,
    };
    CHECK(cuLaunchKernelEx(&config, fill, parameters, NULL));
    check("no attribute", 1);

    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attributes[0].value.priority = greatest;
    config.attrs = attributes;
    config.numAttrs = 1;
    start = 2;
    CHECK(cuLaunchKernelEx(&config, fill, parameters, NULL));
    check("priority", 2);

    attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[1].value.cooperative = cooperative;
    config.numAttrs = 2;
    start = 3;
    CHECK(cuLaunchKernelEx(&config, fill, parameters, NULL));
    check("priority and cooperative", 3);

    struct {
        CUdeviceptr out;
        uint32_t value, n;
    } packed = {memory, 4, COUNT};
    size_t size = sizeof packed;
    void *extra[] = {
        CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
        CU_LAUNCH_PARAM_END,
    };
    config.attrs = NULL;
    config.numAttrs = 0;
    CHECK(cuLaunchKernelEx(&config, fill, NULL, extra));
    check("parameters in one buffer", 4);

    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
