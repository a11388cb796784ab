/* Batches of copies: host and device sides mixed, lines and boxes. */
#include "program.h"

enum { WIDTH = 48, HEIGHT = 6, DEPTH = 2, BYTES = WIDTH * HEIGHT * DEPTH };

static unsigned char in[BYTES], other[64], out[BYTES], back[64];

int main(void)
{
    begin();
    for (int i = 0; i < BYTES; i++)
        in[i] = (unsigned char)(i * 7);
    for (int i = 0; i < 64; i++)
        other[i] = (unsigned char)(200 - i);
    CUstream stream = NULL;
    CUdeviceptr first = 0, second = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&first, BYTES));
    CHECK(cuMemAlloc(&second, BYTES));

    CUmemcpyAttributes how;
    memset(&how, 0, sizeof how);
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t from_first[1] = {0};
    CUdeviceptr up_to[2] = {first, second};
    CUdeviceptr up_from[2] = {(CUdeviceptr)(uintptr_t)in, (CUdeviceptr)(uintptr_t)other};
    size_t up_sizes[2] = {BYTES, sizeof other};
    if (!SUPPORTED(cuMemcpyBatchAsync(up_to, up_from, up_sizes, 2, &how, from_first, 1, stream))) {
        end();
        return success();
    }
    CUdeviceptr down_to[2] = {(CUdeviceptr)(uintptr_t)out, (CUdeviceptr)(uintptr_t)back};
    CUdeviceptr down_from[2] = {first, second};
    CHECK(cuMemcpyBatchAsync(down_to, down_from, up_sizes, 2, &how, from_first, 1, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(in, out, BYTES) == 0 && memcmp(other, back, sizeof other) == 0);
    printf("lines agree\n");

    CUDA_MEMCPY3D_BATCH_OP ops[2];
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < 2; i++) {
        ops[i].src.type = ops[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        ops[i].src.op.ptr.rowLength = ops[i].dst.op.ptr.rowLength = WIDTH;
        ops[i].src.op.ptr.layerHeight = ops[i].dst.op.ptr.layerHeight = HEIGHT;
        ops[i].extent.width = 20;
        ops[i].extent.height = 3;
        ops[i].extent.depth = DEPTH;
        ops[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    memset(out, 0, sizeof out);
    CHECK(cuMemsetD8Async(second, 0, BYTES, stream));
    ops[0].src.op.ptr.ptr = first;
    ops[0].dst.op.ptr.ptr = second;
    ops[1].src.op.ptr.ptr = (CUdeviceptr)(uintptr_t)in;
    ops[1].dst.op.ptr.ptr = second + WIDTH * 3;
    CHECK(cuMemcpy3DBatchAsync(2, ops, 0, stream));
    CHECK(cuMemcpyDtoHAsync(out, second, BYTES, stream));
    CHECK(cuStreamSynchronize(stream));
    for (int z = 0; z < DEPTH; z++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++) {
                int at = (z * HEIGHT + y) * WIDTH + x, source = (z * HEIGHT + y % 3) * WIDTH + x;
                EXPECT(out[at] == (x < 20 ? in[source] : 0));
            }
    printf("boxes agree\n");
    memset(out, 0, sizeof out);
    ops[0].src.op.ptr.ptr = second;
    ops[0].dst.op.ptr.ptr = (CUdeviceptr)(uintptr_t)out;
    CHECK(cuMemcpy3DBatchAsync(1, ops, 0, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(out[WIDTH + 19] == in[WIDTH + 19] && out[WIDTH + 20] == 0);
    show("a byte of the box", out[WIDTH + 19]);

    CHECK(cuMemFree(second));
    CHECK(cuMemFree(first));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
