/* Threads that call the driver at full rate until stdin is closed: their trace is read meanwhile.
 * With an argument, they rest so many milliseconds after each round. A byte e on stdin lets a call fail, f
 * frees memory twice, p stops the threads, c goes on, and k kills the process. */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 3, BYTES = 4096, COPIED = 100000 };

static atomic_int is_done, is_paused;
static useconds_t rests;
static CUcontext context;

static void *work(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CUstream stream;
    CUdeviceptr memory, other;
    CHECK(cuStreamCreate(&stream, 0));
    CHECK(cuMemAlloc(&memory, COPIED));
    uint8_t *bytes = calloc(COPIED, 1);
    for (unsigned round = 0; !is_done; round++) {
        if (rests)
            usleep(1000 * rests);
        while (is_paused && !is_done)
            usleep(1000);
        CHECK(cuMemsetD8Async(memory, (unsigned char)round, BYTES, stream));
        CHECK(cuStreamSynchronize(stream));
        if (round % 64 == 0) {
            /* Blobs, each another one. */
            bytes[round / 64 % COPIED]++;
            CHECK(cuMemcpyHtoD(memory, bytes, COPIED));
        }
        CUevent event;
        CHECK(cuEventCreate(&event, 0));
        CHECK(cuEventRecord(event, stream));
        CHECK(cuEventDestroy(event));
        if (round % 100 == 0) {
            CHECK(cuMemAlloc(&other, 256));
            CHECK(cuMemFree(other));
        }
    }
    free(bytes);
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    return NULL;
}

int main(int count, char **arguments)
{
    rests = count > 1 ? (useconds_t)atoi(arguments[1]) : 0;
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate(&context, NULL, 0, device));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, NULL) == 0);
    char byte;
    while (read(0, &byte, 1) > 0) {
        if (byte == 'p' || byte == 'c')
            is_paused = byte == 'p';
        if (byte == 'k')
            abort();
        if (byte == 'e') {
            CUdeviceptr none;
            CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 1ull << 60));
        }
        if (byte == 'f') {
            CUdeviceptr twice;
            CHECK(cuMemAlloc(&twice, 256));
            CHECK(cuMemFree(twice));
            CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(twice));
        }
    }
    is_done = 1;
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    CHECK(cuCtxDestroy(context));
    return success();
}
