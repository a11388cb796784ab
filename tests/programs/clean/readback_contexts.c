/* Copies to host memory in one context, and calls that end objects of another, or the context. */
// null-driver: CUTAPE_NULL_SCHEDULE=lazy
#include "program.h"

#include <sys/mman.h>

enum { SIZE = 4096 };

int main(void)
{
    CUcontext first = NULL, second = NULL;
    CUdeviceptr of_first = 0, memory = 0;
    CUstream stream = NULL;
    unsigned char *pinned = NULL, *pinned_first = NULL;
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR shape = {64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate(&first, NULL, 0, device));
    CHECK(cuMemAlloc(&of_first, SIZE));
    CHECK(cuMemHostAlloc((void **)&pinned_first, SIZE, 0));
    CHECK(cuArrayCreate(&array, &shape));
    CHECK(cuCtxCreate(&second, NULL, 0, device));
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemHostAlloc((void **)&pinned, SIZE, 0));
    memset(pinned, 0, SIZE);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    /* None of them waits for the copies of the current context. */
    for (int way = 0; way < 3; way++) {
        CHECK(cuMemsetD8Async(memory, (unsigned char)(way + 1), SIZE, stream));
        CHECK(cuMemcpyDtoHAsync(pinned, memory, SIZE, stream));
        switch (way) {
        case 0:
            CHECK(cuMemFree(of_first));
            break;
        case 1:
            CHECK(cuMemFreeHost(pinned_first));
            break;
        default:
            CHECK(cuArrayDestroy(array));
        }
        CHECK(cuStreamSynchronize(stream));
        EXPECT(pinned[0] == way + 1 && pinned[SIZE - 1] == way + 1);
        memset(pinned, 0, SIZE);
    }
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxDestroy(first));

    /* A context ends before its copy; another gets its handle. */
    unsigned char *registered = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(registered != MAP_FAILED);
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemHostRegister(registered, SIZE, 0));
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemsetD8(memory, 7, SIZE));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemcpyDtoHAsync(registered, memory, SIZE, stream));
    CHECK(cuDevicePrimaryCtxReset(device));
    memset(registered, 9, SIZE);
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    CHECK(cuDevicePrimaryCtxRelease(device));
    EXPECT(munmap(registered, SIZE) == 0);
    return success();
}
