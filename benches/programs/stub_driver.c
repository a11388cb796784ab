/* A libcuda that does almost nothing: the time of a call is the caller's and the recorder's. It
 * has the functions that tests/gpu/bench/call_cost.c calls, and those that the recorder calls
 * itself. */
#include <string.h>

#include "cuda_api.h"

static CUdevice current_device;
static __thread CUcontext current = (CUcontext)0x5500001000;
static const char names[] = "nothing\0eight\0mixed";

CUresult cuInit(unsigned flags)
{
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = current_device;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)0x5500001000;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 1;
    return device == current_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    *module = (CUmodule)0x5500002000;
    return CUDA_SUCCESS;
}

/* A kernel's handle is the address of its name in `names`. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    int offset = strcmp(name, "eight") == 0 ? 8 : strcmp(name, "mixed") == 0 ? 14 : 0;
    *function = (CUfunction)(names + offset);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    static const unsigned char eight[8][2] = {{0, 8}, {8, 8}, {16, 8}, {24, 4}, {28, 4}, {32, 4},
                                              {40, 8}, {48, 8}};
    static const unsigned char mixed[4][2] = {{0, 4}, {4, 1}, {8, 24}, {32, 8}};
    const unsigned char(*layout)[2] = (const char *)function == names + 8 ? eight : mixed;
    if ((const char *)function == names || index >= (layout == eight ? 8 : 4))
        return CUDA_ERROR_INVALID_VALUE;
    *offset = layout[index][0];
    *size = layout[index][1];
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void **parameters, void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)parameters, (void)extra;
    return function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    (void)config, (void)parameters, (void)extra;
    return function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)0x5500003000;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)stream;
    return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventQuery(CUevent event)
{
    return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t length, CUstream stream)
{
    (void)value, (void)length, (void)stream;
    return address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)address;
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *address, size_t length, unsigned flags)
{
    (void)length, (void)flags;
    return address != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t length)
{
    *address = 0x7f0000000000;
    return length > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree(CUdeviceptr address)
{
    return address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoD(CUdeviceptr target, const void *source, size_t length)
{
    (void)target, (void)source, (void)length;
    return CUDA_SUCCESS;
}
