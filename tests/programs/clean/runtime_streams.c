/* What the CUDA runtime of CUDA 13 calls for a program with four streams in a ring: the primary
 * context, whose handle it has past the recorder, is current before a recorded call returns it;
 * each stream waits for an event of its own, and a wait for the device names the context. */
// not-played: it calls the driver past the recorder, and the null driver is where play looks
#define _GNU_SOURCE
#include "program.h"
#include "unrecorded.h"

enum { STREAMS = 4, COUNT = 4096, BYTES = COUNT * 4, ROUNDS = 6 };

typedef CUresult (*Retain)(CUcontext *, CUdevice);
typedef CUresult (*Release)(CUdevice);

static CUstream streams[STREAMS];
static CUevent done[STREAMS];
static uint32_t *in[STREAMS], *out[STREAMS];
static CUdeviceptr from[STREAMS], to[STREAMS];
static CUfunction add;

/* cudaDeviceSynchronize */
static void device_synchronize(void)
{
    CUcontext current = NULL;
    CHECK(cuCtxGetCurrent(&current));
    CHECK(cuCtxSynchronize_v2(current));
}

static void compute(int slot, CUstream stream)
{
    uint32_t count = COUNT;
    void *parameters[] = {&from[slot], &from[slot], &to[slot], &count};
    launch(add, 4, 128, stream, parameters);
}

/* Copies to the device, launches and copies back overlap, each in the stream of its slot. */
static void ring(CUstream *used)
{
    int current = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int next = (current + 1) % STREAMS;
        CHECK(cuEventSynchronize(done[next]));
        compute(current, used[current]);
        CHECK(cuMemcpyHtoDAsync(from[next], in[next], BYTES, used[next]));
        CHECK(cuMemcpyDtoHAsync(out[current], to[current], BYTES, used[current]));
        CHECK(cuEventRecord(done[current], used[current]));
        current = next;
    }
    device_synchronize();
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    Retain retain = (Retain)unrecorded("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain);
    Release release = (Release)unrecorded("cuDevicePrimaryCtxRelease_v2", cuDevicePrimaryCtxRelease);
    CUcontext known = NULL, current = NULL;
    CHECK(retain(&known, device));

    CHECK(cuCtxSetCurrent(known));
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == known);
    /* Created before a recorded call says which context that is. */
    CHECK(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
    CHECK(cuEventCreate(&done[0], CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&from[0], BYTES));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    EXPECT(context == known);
    CUdevice here = -1;
    CHECK(cuCtxGetDevice(&here));
    EXPECT(here == device);

    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    add = function_of(module, "vector_add");
    for (int i = 0; i < STREAMS; i++) {
        if (i != 0) {
            CHECK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
            CHECK(cuEventCreate(&done[i], CU_EVENT_DEFAULT));
            CHECK(cuMemAlloc(&from[i], BYTES));
        }
        CHECK(cuMemHostAlloc((void **)&in[i], BYTES, 0));
        CHECK(cuMemHostAlloc((void **)&out[i], BYTES, 0));
        CHECK(cuMemAlloc(&to[i], BYTES));
        CHECK(cuMemsetD8(from[i], 0, BYTES));
        CHECK(cuMemsetD8(to[i], 0, BYTES));
        CHECK(cuEventRecord(done[i], streams[i]));
        for (uint32_t at = 0; at < COUNT; at++)
            in[i][at] = at * (i + 1);
        memset(out[i], 0, BYTES);
    }
    device_synchronize();

    /* All in one stream first, then each slot in its own. */
    CUstream one[STREAMS] = {streams[3], streams[3], streams[3], streams[3]};
    ring(one);
    ring(streams);
    for (int i = 0; i < STREAMS; i++) {
        show_u32("out", out[i], COUNT);
        EXPECT_KERNEL(i == 0 || out[i][7] == 14u * (i + 1));
    }

    for (int i = 0; i < STREAMS; i++) {
        CHECK(cuMemFreeHost(in[i]));
        CHECK(cuMemFree(from[i]));
        CHECK(cuMemFreeHost(out[i]));
        CHECK(cuMemFree(to[i]));
        CHECK(cuStreamDestroy(streams[i]));
        CHECK(cuEventDestroy(done[i]));
    }
    CHECK(cuModuleUnload(module));
    end();
    CHECK(release(device));
    return success();
}
