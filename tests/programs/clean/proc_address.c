/* Functions by cuGetProcAddress: of several versions and flags, called through the pointers;
 * unknown names and too old versions. */
#include "program.h"

typedef CUresult (*init_function)(unsigned);
typedef CUresult (*device_get_function)(CUdevice *, int);
typedef CUresult (*retain_function)(CUcontext *, CUdevice);
typedef CUresult (*release_function)(CUdevice);
typedef CUresult (*set_current_function)(CUcontext);
typedef CUresult (*alloc_function)(CUdeviceptr *, size_t);
typedef CUresult (*free_function)(CUdeviceptr);
typedef CUresult (*memset_function)(CUdeviceptr, unsigned char, size_t);
typedef CUresult (*to_host_function)(void *, CUdeviceptr, size_t);
typedef CUresult (*load_function)(CUmodule *, const void *);
typedef CUresult (*get_function_function)(CUfunction *, CUmodule, const char *);
typedef CUresult (*unload_function)(CUmodule);
typedef CUresult (*launch_function)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, CUstream, void **, void **);
typedef CUresult (*stream_synchronize_function)(CUstream);
typedef CUresult (*get_proc_address_v1_function)(const char *, void **, int, cuuint64_t);

static void *ask(const char *name, int version, cuuint64_t flags)
{
    void *pointer = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CHECK(cuGetProcAddress(name, &pointer, version, flags, &status));
    EXPECT(pointer != NULL && status == CU_GET_PROC_ADDRESS_SUCCESS);
    return pointer;
}

static void use(const char *label, int version, cuuint64_t flags)
{
    init_function init = (init_function)ask("cuInit", version, flags);
    device_get_function device_get = (device_get_function)ask("cuDeviceGet", version, flags);
    retain_function retain = (retain_function)ask("cuDevicePrimaryCtxRetain", version, flags);
    release_function release = (release_function)ask("cuDevicePrimaryCtxRelease", version, flags);
    set_current_function set_current = (set_current_function)ask("cuCtxSetCurrent", version, flags);
    alloc_function alloc = (alloc_function)ask("cuMemAlloc", version, flags);
    free_function release_memory = (free_function)ask("cuMemFree", version, flags);
    memset_function set = (memset_function)ask("cuMemsetD8", version, flags);
    to_host_function to_host = (to_host_function)ask("cuMemcpyDtoH", version, flags);
    load_function load = (load_function)ask("cuModuleLoadData", version, flags);
    get_function_function get_function =
        (get_function_function)ask("cuModuleGetFunction", version, flags);
    unload_function unload = (unload_function)ask("cuModuleUnload", version, flags);
    launch_function launch_kernel = (launch_function)ask("cuLaunchKernel", version, flags);
    stream_synchronize_function synchronize =
        (stream_synchronize_function)ask("cuStreamSynchronize", version, flags);

    CUdevice dev = -1;
    CUcontext ctx = NULL;
    CUdeviceptr memory = 0;
    CUmodule module = NULL;
    CUfunction mark = NULL;
    CHECK(init(0));
    CHECK(device_get(&dev, 0));
    CHECK(retain(&ctx, dev));
    CHECK(set_current(ctx));
    CHECK(alloc(&memory, 4));
    CHECK(set(memory, 1, 4));
    CHECK(load(&module, PTX_MARK));
    CHECK(get_function(&mark, module, "mark"));
    void *parameters[] = {&memory};
    CHECK(launch_kernel(mark, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(synchronize(NULL));
    uint32_t value = 0;
    CHECK(to_host(&value, memory, sizeof value));
    show(label, value);
    EXPECT_KERNEL(value == 42);
    CHECK(release_memory(memory));
    CHECK(unload(module));
    CHECK(set_current(NULL));
    CHECK(release(dev));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    use("version 12000", 12000, CU_GET_PROC_ADDRESS_DEFAULT);
    use("version 11030, legacy stream", 11030, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    use("version 12000, stream per thread", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

    void *pointer = &pointer;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = cuGetProcAddress("cuNoSuchFunction", &pointer, 12000,
                                       CU_GET_PROC_ADDRESS_DEFAULT, &status);
    EXPECT(pointer == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    printf("unknown name: %s\n", result_name(result));
    result = cuGetProcAddress("cuLaunchKernelEx", &pointer, 11000, CU_GET_PROC_ADDRESS_DEFAULT,
                              &status);
    EXPECT(pointer == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    printf("too old: %s\n", result_name(result));
    /* the status may be left out */
    CHECK(cuGetProcAddress("cuInit", &pointer, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));

    /* cuGetProcAddress by itself, in its first form, and its second by that */
    get_proc_address_v1_function first = (get_proc_address_v1_function)ask(
        "cuGetProcAddress", 11030, CU_GET_PROC_ADDRESS_DEFAULT);
    pointer = NULL;
    CHECK(first("cuDriverGetVersion", &pointer, 11030, CU_GET_PROC_ADDRESS_DEFAULT));
    int version = 0;
    CHECK(((CUresult(*)(int *))pointer)(&version));
    EXPECT(version >= 12000);
    printf("found by the first form\n");
    return success();
}
