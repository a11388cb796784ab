/* The driver opened at run time by its name, and every function looked up in it: no symbol of it is
 * linked. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_api.h"
#include "ptx.h"

static void *library;

static void *symbol(const char *name)
{
    void *pointer = dlsym(library, name);
    if (pointer == NULL) {
        fprintf(stderr, "no symbol %s\n", name);
        exit(1);
    }
    return pointer;
}

static void check(CUresult result, const char *name)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s gave %d\n", name, (int)result);
    exit(1);
}

/* Looks a function up and calls it: CALL("cuInit", (unsigned), 0). */
#define CALL(name, types, ...) check(((CUresult(*) types)symbol(name))(__VA_ARGS__), name)

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *again = dlopen("libcuda.so.1", RTLD_LAZY);
    printf("opened twice, one library: %s\n", again == library ? "yes" : "no");
    dlclose(again);

    CUdevice dev = -1;
    CUcontext ctx = NULL;
    CUdeviceptr memory = 0;
    CUmodule module = NULL;
    CUfunction fill = NULL;
    uint32_t start = 1, count = 100, out[100];
    CALL("cuInit", (unsigned), 0);
    CALL("cuDeviceGet", (CUdevice *, int), &dev, 0);
    CALL("cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice), &ctx, dev);
    CALL("cuCtxPushCurrent_v2", (CUcontext), ctx);
    CALL("cuMemAlloc_v2", (CUdeviceptr *, size_t), &memory, sizeof out);
    CALL("cuMemsetD32_v2", (CUdeviceptr, unsigned, size_t), memory, 6, 100);
    CALL("cuModuleLoadData", (CUmodule *, const void *), &module, PTX_FILL);
    CALL("cuModuleGetFunction", (CUfunction *, CUmodule, const char *), &fill, module, "fill");
    void *parameters[] = {&memory, &start, &count};
    CALL("cuLaunchKernel",
         (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
          CUstream, void **, void **), fill, 1, 1, 1,
         32, 1, 1, 0, NULL, parameters, NULL);
    CALL("cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t), out, memory, sizeof out);
    printf("first %u, last %u\n", out[0], out[99]);
    CALL("cuMemFree_v2", (CUdeviceptr), memory);
    CALL("cuModuleUnload", (CUmodule), module);
    CALL("cuCtxPopCurrent_v2", (CUcontext *), &ctx);
    CALL("cuDevicePrimaryCtxRelease_v2", (CUdevice), dev);
    puts("EXIT-SUCCESS");
    return 0;
}
