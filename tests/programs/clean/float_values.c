/* Numbers that stand out: a NaN by a memset, one by a copy on the device, an infinity of two bytes by
 * a node of a graph, in memory that is allocated with such numbers in it, and a large number by a copy
 * from the host. */
#include "program.h"

enum { COUNT = 8192, NOT_A_NUMBER = 0x7fc00000 };

static float host[COUNT];

int main(void)
{
    begin();
    CUdeviceptr numbers = 0, copied = 0, halves = 0;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&numbers, COUNT * 4));
    CHECK(cuMemAlloc(&copied, COUNT * 4));
    CHECK(cuMemAlloc(&halves, 64));
    for (int i = 0; i < COUNT; i++)
        host[i] = 0.5f + (float)(i % 16);
    CHECK(cuMemcpyHtoD(numbers, host, sizeof host));
    CHECK(cuMemsetD8(copied, 0, sizeof host));
    CHECK(cuMemsetD16(halves, 0x3c00, 32));
    CHECK(cuMemsetD32(numbers + 5000 * 4, NOT_A_NUMBER, 1));
    /* Nothing new: the same number again. */
    CHECK(cuMemsetD32(numbers + 5000 * 4, NOT_A_NUMBER, 1));
    CHECK(cuMemcpyDtoDAsync(copied, numbers + COUNT * 2, COUNT * 2, NULL));
    CHECK(cuStreamSynchronize(NULL));
    host[77] = 1e9f;
    CHECK(cuMemcpyHtoD(numbers, host, sizeof host));

    CUgraph graph = NULL;
    CUgraphNode nodes[2];
    CUgraphExec executable = NULL;
    CUDA_MEMSET_NODE_PARAMS params = {.dst = halves, .elementSize = 2, .value = 0x4000, .width = 8, .height = 1};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &params, context));
    params.dst += 32;
    params.value = 0xfc00;
    params.width = 1;
    CHECK(cuGraphAddMemsetNode(&nodes[1], graph, &nodes[0], 1, &params, context));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    uint16_t back[32];
    CHECK(cuMemcpyDtoH(back, halves, sizeof back));
    EXPECT(back[0] == 0x4000 && back[16] == 0xfc00);
    CHECK(cuMemcpyDtoH(host, copied, sizeof host));
    EXPECT(host[5000 - 4096] != host[5000 - 4096]);

    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(numbers));
    CHECK(cuMemFree(copied));
    CHECK(cuMemFree(halves));
    CHECK(cuStreamDestroy(stream));
    puts("written");
    end();
    return success();
}
