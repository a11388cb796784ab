// The image has no code for the device, and no result is looked at until the results of the kernel
// are missing, as in https://github.com/OpenBMB/cpm_kernels/issues/6: one finding, for the load. The
// control loads PTX.
// expect: module-no-binary-for-device
// needs: a device that is not of compute capability 7.5
#include "cubins.h"
#include "images.h"

int main(void)
{
    begin();
    EXPECT(device_arch() != 75);
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr memory = 0;
    uint32_t start = 7, count = 64, first = 0;
#ifdef VIOLATE
    const void *image = CUBIN_SM75;
#else
    const void *image = PTX_FILL;
#endif
    cuModuleLoadData(&module, image);
    cuModuleGetFunction(&function, module, "fill");
    CHECK(cuMemAlloc(&memory, count * 4));
    CHECK(cuMemsetD32(memory, 0, count));
    void *parameters[] = {&memory, &start, &count};
    cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL);
    CHECK(cuMemcpyDtoH(&first, memory, sizeof first));
    CHECK(cuMemFree(memory));
    cuModuleUnload(module);
    end();
    return success();
}
