/* Asynchronous copies back to heap memory, in every form: complete when they return (CUDA manual,
 * API synchronization behavior), so the program reuses the memory at once. Batches are complete only
 * if their sources are accessed during the call (measured). Copies to pinned memory, and batches in
 * stream order, are not looked at before the stream is synchronized. */
#include "program.h"

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream);
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream);

enum { WIDTH = 64, HEIGHT = 6, DEPTH = 2, BYTES = WIDTH * HEIGHT * DEPTH, LONG = 300 << 10 };

static CUdeviceptr memory;
static CUarray line;
static CUstream stream;
static CUmemcpyAttributes how[2];
static size_t from[2] = {0, 1};

static unsigned char value_at(size_t index)
{
    return (unsigned char)(index * 7 + index / 256);
}

static CUresult linear(void *to)
{
    return cuMemcpyDtoHAsync(to, memory, LONG, stream);
}

static CUresult linear_per_thread(void *to)
{
    return cuMemcpyDtoHAsync_v2_ptsz(to, memory, LONG, NULL);
}

static CUresult unified(void *to)
{
    return cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, memory, LONG, stream);
}

static CUresult unified_per_thread(void *to)
{
    return cuMemcpyAsync_ptsz((CUdeviceptr)(uintptr_t)to, memory, LONG, NULL);
}

static CUresult of_array(void *to)
{
    return cuMemcpyAtoHAsync(to, line, 0, BYTES, stream);
}

static CUDA_MEMCPY2D plane_to(void *to)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = WIDTH,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = WIDTH,
        .WidthInBytes = WIDTH, .Height = HEIGHT * DEPTH,
    };
}

static CUresult plane(void *to)
{
    CUDA_MEMCPY2D copy = plane_to(to);
    return cuMemcpy2DAsync(&copy, stream);
}

static CUresult plane_per_thread(void *to)
{
    CUDA_MEMCPY2D copy = plane_to(to);
    return cuMemcpy2DAsync_v2_ptsz(&copy, NULL);
}

static CUDA_MEMCPY3D volume_to(void *to)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = WIDTH,
        .srcHeight = HEIGHT,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)(uintptr_t)to,
        .dstPitch = WIDTH, .dstHeight = HEIGHT,
        .WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = DEPTH,
    };
}

static CUresult volume(void *to)
{
    CUDA_MEMCPY3D copy = volume_to(to);
    return cuMemcpy3DAsync(&copy, stream);
}

static CUresult volume_per_thread(void *to)
{
    CUDA_MEMCPY3D copy = volume_to(to);
    return cuMemcpy3DAsync_v2_ptsz(&copy, NULL);
}

static CUresult peer_volume(void *to)
{
    CUDA_MEMCPY3D_PEER copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = WIDTH,
        .srcHeight = HEIGHT, .srcContext = context,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = WIDTH,
        .dstHeight = HEIGHT, .dstContext = context,
        .WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = DEPTH,
    };
    return cuMemcpy3DPeerAsync(&copy, stream);
}

/* Where the batches copy as well, before and behind the memory that is reused. */
static unsigned char *pinned;

static CUresult batch(void *to)
{
    CUdeviceptr end = (CUdeviceptr)(uintptr_t)to + BYTES / 2;
    CUdeviceptr targets[3] = {(CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)to, end};
    CUdeviceptr sources[3] = {memory, memory, memory + BYTES / 2};
    size_t sizes[3] = {BYTES / 2, BYTES / 2, BYTES / 2};
    return cuMemcpyBatchAsync(targets, sources, sizes, 3, how, from, 2, stream);
}

static CUresult volume_batch(void *to)
{
    CUDA_MEMCPY3D_BATCH_OP copies[2];
    memset(copies, 0, sizeof copies);
    for (int i = 0; i < 2; i++) {
        copies[i].src.type = copies[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        copies[i].src.op.ptr.ptr = memory;
        copies[i].dst.op.ptr.ptr = (CUdeviceptr)(uintptr_t)(i == 0 ? pinned : to);
        copies[i].extent.width = WIDTH;
        copies[i].extent.height = HEIGHT;
        copies[i].extent.depth = DEPTH;
        copies[i].srcAccessOrder = how[i].srcAccessOrder;
    }
    return cuMemcpy3DBatchAsync(2, copies, 0, stream);
}

static const struct form {
    const char *name;
    CUresult (*copy)(void *to);
    size_t bytes;
} forms[] = {
    {"linear", linear, LONG},
    {"linear, per-thread stream", linear_per_thread, LONG},
    {"unified", unified, LONG},
    {"unified, per-thread stream", unified_per_thread, LONG},
    {"from an array", of_array, BYTES},
    {"plane", plane, BYTES},
    {"plane, per-thread stream", plane_per_thread, BYTES},
    {"volume", volume, BYTES},
    {"volume, per-thread stream", volume_per_thread, BYTES},
    {"peer volume", peer_volume, BYTES},
    {"batch", batch, BYTES},
    {"batch of volumes", volume_batch, BYTES},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static void expect_values(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        EXPECT(bytes[i] == value_at(i));
}

int main(void)
{
    begin();
    how[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    how[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    unsigned char *in = malloc(LONG);
    EXPECT(in != NULL);
    for (size_t i = 0; i < LONG; i++)
        in[i] = value_at(i);
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = BYTES, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, LONG));
    CHECK(cuMemcpyHtoD(memory, in, LONG));
    CHECK(cuArrayCreate(&line, &shape));
    CHECK(cuMemcpyHtoA(line, 0, in, BYTES));
    CHECK(cuMemAllocHost((void **)&pinned, LONG));
    free(in);

    for (int i = 0; i < FORMS; i++) {
        const struct form *form = &forms[i];
        unsigned char *block = malloc(form->bytes);
        EXPECT(block != NULL);
        memset(block, 0xEE, form->bytes);
        if (SUPPORTED(form->copy(block))) {
            expect_values(block, form->bytes);
            printf("complete at once: %s\n", form->name);
        }
        memset(block, 0xDD, form->bytes);
        free(block);
    }
    CHECK(cuCtxSynchronize());
    expect_values(pinned, BYTES);

    how[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (int i = 0; i < FORMS; i++) {
        const struct form *form = &forms[i];
        int is_batch = form->copy == batch || form->copy == volume_batch;
        unsigned char *to = is_batch ? malloc(form->bytes) : pinned;
        EXPECT(to != NULL);
        memset(to, 0xEE, form->bytes);
        if (SUPPORTED(form->copy(to))) {
            CHECK(cuCtxSynchronize());
            expect_values(to, form->bytes);
            printf("complete after a wait: %s\n", form->name);
        }
        if (is_batch)
            free(to);
    }

    CHECK(cuMemFreeHost(pinned));
    CHECK(cuArrayDestroy(line));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
