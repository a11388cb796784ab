// Links two PTX inputs and runs the result: a usual program, with one bug that the driver does not
// report.
// expect: link-cubin-after-destroy
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "ptx.h"

enum { COUNT = 1024 };

static void check(CUresult result, const char *what)
{
    const char *text = "unknown error";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorString(result, &text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

/* Links a kernel with the function that it calls, and returns the cubin. */
static const void *build(void)
{
    CUlinkState state;
    void *cubin;
    size_t size;
    check(cuLinkCreate(0, NULL, NULL, &state), "cuLinkCreate");
    check(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)PTX_LINK_CALLER, sizeof PTX_LINK_CALLER,
                        "kernel.ptx", 0, NULL, NULL),
          "adding kernel.ptx");
    check(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)PTX_LINK_CALLEE, sizeof PTX_LINK_CALLEE,
                        "scale.ptx", 0, NULL, NULL),
          "adding scale.ptx");
    check(cuLinkComplete(state, &cubin, &size), "cuLinkComplete");
    printf("linked two inputs\n");
    check(cuLinkDestroy(state), "cuLinkDestroy");
    return cubin; /* the bug: it belonged to the state */
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction scaled;
    CUdeviceptr memory;
    uint32_t count = COUNT, values[COUNT];

    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");

    check(cuModuleLoadData(&module, build()), "cuModuleLoadData");
    check(cuModuleGetFunction(&scaled, module, "scaled"), "cuModuleGetFunction");
    check(cuMemAlloc(&memory, sizeof values), "cuMemAlloc");
    check(cuMemsetD32(memory, 0, COUNT), "cuMemsetD32");
    void *parameters[] = {&memory, &count};
    check(cuLaunchKernel(scaled, 4, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
    check(cuMemcpyDtoH(values, memory, sizeof values), "cuMemcpyDtoH");
    printf("values: %u %u ... %u\n", values[0], values[1], values[COUNT - 1]);

    check(cuMemFree(memory), "cuMemFree");
    check(cuModuleUnload(module), "cuModuleUnload");
    check(cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    puts("EXIT-SUCCESS");
    return 0;
}
