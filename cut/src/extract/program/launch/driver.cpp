// Launches one kernel as a recorded program did, and compares what it writes.
//
//     launch [OPTIONS] [LAUNCH.txt]
//
// The text file describes the launch: image, kernel, grid, parameters, and the memory that the
// kernel can reach, before and after. It can be edited. Memory is placed at its recorded addresses,
// because parameters and memory hold pointers. Nothing but the CUDA driver (libcuda.so.1) is
// needed. Options:
//
//     --driver PATH      load this driver
//     --device N         use this device instead of 0
//     --repeat N         time N launches (default 10)
//     --tolerance T=X    if bits differ, compare as numbers of type T (f16, bf16, f32, f64):
//                        they agree if they differ by at most X times the largest of 1 and both
//
// The exit status is 0 if all memory is as recorded, 1 if not, 2 if the launch cannot be made here.
// The file is C++11 and C99.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>

typedef uint64_t u64;

// The driver API, as far as it is used (CUDA Driver API, cuda.h).
enum { SLOT = 32 << 20, GRANULE = 2 << 20, ATTRIBUTE_VALUE_BYTES = 64 };
typedef struct { unsigned id, padding; unsigned char value[ATTRIBUTE_VALUE_BYTES]; } Attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    Attribute *attributes;
    unsigned count;
} Config;
typedef struct { int type, handle_types, location, id; void *metadata; u64 flags; } MemoryProperties;
typedef struct { int location, id, access; } MemoryAccess;
// CUDA_ARRAY3D_DESCRIPTOR.
typedef struct { size_t width, height, depth; unsigned format, channels, flags; } ArrayShape;
// One side of a CUDA_MEMCPY3D.
typedef struct {
    size_t x, y, z, level;
    int type;
    void *host;
    u64 device;
    void *array, *reserved;
    size_t pitch, height;
} CopySide;
typedef struct { CopySide source, target; size_t width, height, depth; } Copy;
typedef char attributes_are_72_bytes[sizeof(Attribute) == 72 ? 1 : -1];
typedef char configurations_are_56_bytes[sizeof(Config) == 56 ? 1 : -1];
typedef char copies_are_200_bytes[sizeof(Copy) == 200 ? 1 : -1];

#define FUNCTIONS(X) \
    X(cuInit, (unsigned)) \
    X(cuDriverGetVersion, (int *)) \
    X(cuDeviceGet, (int *, int)) \
    X(cuDeviceGetName, (char *, int, int)) \
    X(cuDeviceGetAttribute, (int *, int, int)) \
    X(cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuCtxSetCurrent, (void *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuCtxGetLimit, (size_t *, int)) \
    X(cuCtxSetLimit, (int, size_t)) \
    X(cuGetErrorName, (int, const char **)) \
    X(cuMemAddressReserve, (u64 *, size_t, size_t, u64, u64)) \
    X(cuMemAddressFree, (u64, size_t)) \
    X(cuMemCreate, (u64 *, size_t, const MemoryProperties *, u64)) \
    X(cuMemMap, (u64, size_t, size_t, u64, u64)) \
    X(cuMemSetAccess, (u64, size_t, const MemoryAccess *, size_t)) \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    X(cuMemHostGetDevicePointer_v2, (u64 *, void *, unsigned)) \
    X(cuMemcpyHtoD_v2, (u64, const void *, size_t)) \
    X(cuMemcpyDtoH_v2, (void *, u64, size_t)) \
    X(cuArray3DCreate_v2, (void **, const ArrayShape *)) \
    X(cuMipmappedArrayCreate, (void **, const ArrayShape *, unsigned)) \
    X(cuMipmappedArrayGetLevel, (void **, void *, unsigned)) \
    X(cuMemcpy3D_v2, (const Copy *)) \
    X(cuTexObjectCreate, (u64 *, const void *, const void *, const void *)) \
    X(cuSurfObjectCreate, (u64 *, const void *)) \
    X(cuModuleLoadData, (void **, const void *)) \
    X(cuModuleGetFunction, (void **, void *, const char *)) \
    X(cuModuleGetGlobal_v2, (u64 *, size_t *, void *, const char *)) \
    X(cuFuncGetAttribute, (int *, int, void *)) \
    X(cuFuncSetAttribute, (void *, int, int)) \
    X(cuStreamCreate, (void **, unsigned)) \
    X(cuEventCreate, (void **, unsigned)) \
    X(cuEventRecord, (void *, void *)) \
    X(cuEventSynchronize, (void *)) \
    X(cuEventElapsedTime, (float *, void *, void *)) \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                       unsigned, void *, void **, void **))
#define DECLARE(name, arguments) static int (*name) arguments;
FUNCTIONS(DECLARE)
static int (*cuLaunchKernelEx)(const Config *, void *, void **, void **); // since CUDA 11.8

