/* A loop over large registered and pinned host memory: in each round, four streams launch a kernel
 * and copy their quarter to the host and back, then the host writes a few bytes. At the end, a graph
 * copies pageable memory. With arguments, bytes of each buffer in MiB and rounds, it is what the
 * figures in benches/README.md time. */
// may: performance-tiny-launches
#include "program.h"

#include <sys/mman.h>

enum { STREAMS = 4 };

static CUfunction fill;
static CUstream streams[STREAMS];

/* One buffer on host and device. */
static void loop(const char *label, char *memory, size_t bytes, unsigned rounds)
{
    CUdeviceptr target = 0;
    CHECK(cuMemAlloc(&target, bytes));
    CHECK(cuMemsetD8(target, 0x5a, bytes));
    /* the streams do not wait for the default stream */
    CHECK(cuCtxSynchronize());
    size_t part = bytes / STREAMS;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < STREAMS; i++) {
            CUdeviceptr from = target + i * part;
            uint32_t start = i, count = 1024;
            void *parameters[] = {&from, &start, &count};
            launch(fill, 4, 256, streams[i], parameters);
        }
        /* To the host in some rounds, back to the device in the others. */
        for (unsigned i = 0; i < STREAMS; i++) {
            if (round % 4 != 3)
                CHECK(cuMemcpyDtoHAsync(memory + i * part, target + i * part, part, streams[i]));
            else
                CHECK(cuMemcpyHtoDAsync(target + i * part, memory + i * part, part, streams[i]));
        }
        CHECK(cuCtxSynchronize());
        if (round % 8 == 2)
            memory[(size_t)round * 4099 % bytes] ^= 1;
    }
    unsigned long long sum = 0;
    for (size_t i = 0; i < bytes; i += 64)
        sum += (unsigned char)memory[i];
    show(label, sum);
    CHECK(cuMemFree(target));
}

/* A graph that reads pageable memory, which changes once between its launches. */
static void graph_launches(size_t bytes)
{
    char *memory = malloc(bytes);
    EXPECT(memory != NULL);
    memset(memory, 0x11, bytes);
    CUdeviceptr target = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CHECK(cuMemAlloc(&target, bytes));
    CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemcpyHtoDAsync(target, memory, bytes, streams[0]));
    CHECK(cuStreamEndCapture(streams[0], &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 0; round < 4; round++) {
        if (round == 2)
            memory[bytes - 1] = 0x22;
        CHECK(cuGraphLaunch(exec, streams[0]));
        CHECK(cuStreamSynchronize(streams[0]));
    }
    unsigned char last = 0;
    CHECK(cuMemcpyDtoH(&last, target + bytes - 1, 1));
    show("last byte of the graph's copy", last);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(target));
    free(memory);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) << 20 : 1 << 20;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 16;
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    fill = function_of(module, "fill");
    for (unsigned i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));

    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    memset(memory, 0xff, bytes);
    CHECK(cuMemHostRegister(memory, bytes, 0));
    loop("registered", memory, bytes, rounds);
    CHECK(cuMemHostUnregister(memory));
    EXPECT(munmap(memory, bytes) == 0);

    void *pinned = NULL;
    CHECK(cuMemHostAlloc(&pinned, bytes, 0));
    memset(pinned, 0xff, bytes);
    loop("pinned", pinned, bytes, rounds);
    CHECK(cuMemFreeHost(pinned));

    graph_launches(bytes);
    for (unsigned i = 0; i < STREAMS; i++)
        CHECK(cuStreamDestroy(streams[i]));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
