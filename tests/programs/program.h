/* What every test program shares: checked calls, printing, the device's primary context, and a
 * question to the driver whether launches really run. Programs print nothing that differs between
 * two runs on one driver: no addresses, times or ids. */
#ifndef CUTAPE_PROGRAM_H
#define CUTAPE_PROGRAM_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"
#include "ptx.h"

#define UNUSED __attribute__((unused))

/* The device and the context that `begin` made current. */
static CUdevice device UNUSED;
static CUcontext context UNUSED;

/* The name of a result, also where the driver knows none. */
static inline const char *result_name(CUresult result)
{
    const char *name = NULL;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        return "an unnamed result";
    return name;
}

static inline void check_result(CUresult got, CUresult wanted, const char *call, const char *file,
                                int line)
{
    if (got == wanted)
        return;
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s gave %s (%d), expected %d\n", file, line, call, result_name(got),
            (int)got, (int)wanted);
    exit(1);
}

static inline int is_supported(CUresult result, const char *call, const char *file, int line)
{
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        printf("not supported by this driver: %.*s\n", (int)strcspn(call, "("), call);
        return 0;
    }
    check_result(result, CUDA_SUCCESS, call, file, line);
    return 1;
}

/* The call must succeed. */
#define CHECK(call) check_result((call), CUDA_SUCCESS, #call, __FILE__, __LINE__)

/* Whether the driver has the function at all; the null driver lacks some. Any other failure ends
 * the program. */
#define SUPPORTED(call) is_supported((call), #call, __FILE__, __LINE__)

/* The call must return this result. */
#define CHECK_RESULT(wanted, call) check_result((call), (wanted), #call, __FILE__, __LINE__)

/* A wrong call made on purpose; its result is ignored. */
#define MISUSE(call) ((void)(call))

static inline void expect(int holds, const char *what, const char *file, int line)
{
    if (holds)
        return;
    fflush(stdout);
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    exit(1);
}

/* The condition must hold on every driver. */
#define EXPECT(condition) expect(!!(condition), #condition, __FILE__, __LINE__)

/* The condition must hold if launches run code (the null driver runs none). */
#define EXPECT_KERNEL(condition) expect(!driver_runs_kernels() || (condition), #condition, \
                                        __FILE__, __LINE__)

/* Prints one number. */
static inline void show(const char *label, unsigned long long value)
{
    printf("%s: %llu\n", label, value);
}

/* Prints the first, the middle and the last of `count` values, and the sum of all. */
static inline void show_u32(const char *label, const uint32_t *values, size_t count)
{
    unsigned long long sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    printf("%s: %zu values, %u %u %u, sum %llu\n", label, count, count ? values[0] : 0,
           count ? values[count / 2] : 0, count ? values[count - 1] : 0, sum);
}

/* Initialises the driver and makes the primary context of device 0 current. */
static inline void begin(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

/* Releases the primary context. */
static inline void end(void)
{
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuDevicePrimaryCtxRelease(device));
    context = NULL;
}

/* Prints the last line of a correct run; main returns the result. */
static inline int success(void)
{
    puts("EXIT-SUCCESS");
    return 0;
}

/* Loads PTX into the current context. */
static inline CUmodule load_ptx(const char *ptx)
{
    CUmodule module = NULL;
    CHECK(cuModuleLoadData(&module, ptx));
    return module;
}

/* A function of a module, by name. */
static inline CUfunction function_of(CUmodule module, const char *name)
{
    CUfunction function = NULL;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

/* One-dimensional launch without dynamic shared memory. */
static inline void launch(CUfunction function, unsigned grid, unsigned block, CUstream stream,
                          void **parameters)
{
    CHECK(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, NULL));
}

/* The configuration of a one-dimensional launch with attributes. */
static inline CUlaunchConfig configuration(unsigned grid, unsigned block, CUstream stream,
                                           CUlaunchAttribute *attributes, unsigned count)
{
    CUlaunchConfig config = {
        .gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = block, .blockDimY = 1,
        .blockDimZ = 1, .hStream = stream, .attrs = attributes, .numAttrs = count,
    };
    return config;
}

/* Whether a launch changes memory: asked once, in the current context, with a module and memory of
 * its own. Call it before other threads start. */
static inline int driver_runs_kernels(void)
{
    static int answer = -1;
    if (answer >= 0)
        return answer;
    CUmodule module = load_ptx(PTX_MARK);
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    uint32_t value = 1;
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemcpyHtoD(memory, &value, sizeof value));
    void *parameters[] = {&memory};
    launch(mark, 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    answer = value == 42;
    return answer;
}

/* Writes a new file in the folder for temporary files; `path` must hold 64 bytes. The caller
 * unlinks it. */
static inline void write_temporary(char *path, const void *bytes, size_t size)
{
    snprintf(path, 64, "%s/cutape-test-XXXXXX", P_tmpdir);
    int file = mkstemp(path);
    EXPECT(file >= 0);
    EXPECT(write(file, bytes, size) == (ssize_t)size);
    EXPECT(close(file) == 0);
}

#endif
