/* A value that a stream writes into memory of the host tells the program that the earlier work of
 * the stream is complete: alone, with others at once, and from a host function in a graph. */
#include "program.h"

#include <stdatomic.h>

enum { COUNT = 16 };

static CUdeviceptr memory;
static CUstream first, second;
static uint32_t *flag;
static atomic_int is_told;

static void tell(void *unused)
{
    (void)unused;
    is_told = 1;
}

static void poll_value(void)
{
    while (*(volatile uint32_t *)flag == 0)
        usleep(200);
    *(volatile uint32_t *)flag = 0;
}

/* Writes the same memory in another stream. */
static void write_again(unsigned value)
{
    uint32_t read = 0;
    CHECK(cuMemsetD32Async(memory, value, COUNT, second));
    CHECK(cuStreamSynchronize(second));
    CHECK(cuMemcpyDtoH(&read, memory, sizeof read));
    EXPECT(read == value);
    show("value", read);
}

int main(void)
{
    begin();
    CHECK(cuMemAlloc(&memory, COUNT * 4));
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&flag, 4096, 0));
    *(volatile uint32_t *)flag = 0;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)flag;

    CHECK(cuMemsetD32Async(memory, 1, COUNT, first));
    CHECK(cuStreamWriteValue32(first, address, 1, 0));
    poll_value();
    write_again(2);

    CUstreamBatchMemOpParams write = {0};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = address;
    write.writeValue.value = 1;
    CHECK(cuMemsetD32Async(memory, 3, COUNT, first));
    CHECK(cuStreamBatchMemOp(first, 1, &write, 0));
    poll_value();
    write_again(4);

    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUDA_HOST_NODE_PARAMS function = {.fn = tell};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &function));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 0; round < 2; round++) {
        is_told = 0;
        CHECK(cuMemsetD32Async(memory, 5, COUNT, first));
        CHECK(cuGraphLaunch(exec, first));
        while (!is_told)
            usleep(200);
        write_again(6 + round);
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));

    CHECK(cuCtxSynchronize());
    CHECK(cuMemFreeHost(flag));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
