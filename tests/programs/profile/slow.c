/* Five planted slownesses and their repaired forms, for the tests of `what-if`:
 *     slow CASE [fixed] [TURNS]
 * `wait` waits in a loop, `pageable` copies from pageable memory, `serial` puts independent work on
 * one stream, `tiny` launches what a graph would join, `shape` launches one block. Waits that are
 * needed: `rewrite` writes the source of a copy after it, `cross` orders two streams with it, `bring`
 * reads what a copy has brought. `pieces` copies what lies together in pieces, `spread` copies what the
 * copy before has written. Prints the time of its loop. */
#include <time.h>

#include "program.h"

/* work(out, n, rounds): out[i] = `rounds` steps of a linear congruential generator from out[i] on. */
static const char PTX_WORK[] = PTX_HEAD
    ".visible .entry work(.param .u64 out, .param .u32 n, .param .u32 rounds)\n{\n"
    " .reg .b64 %base, %address;\n .reg .b32 %count, %value, %left;\n .reg .pred %p;\n"
    PTX_GRID_STRIDE
    " ld.param.u64 %base, [out];\n"
    " cvta.to.global.u64 %base, %base;\n"
    " ld.param.u32 %count, [n];\n"
    "again:\n"
    " setp.ge.u32 %p, %index, %count;\n"
    " @%p bra finished;\n"
    " mad.wide.u32 %address, %index, 4, %base;\n"
    " ld.global.u32 %value, [%address];\n"
    " ld.param.u32 %left, [rounds];\n"
    "round:\n"
    " mad.lo.u32 %value, %value, 1664525, 1013904223;\n"
    " sub.u32 %left, %left, 1;\n"
    " setp.ne.u32 %p, %left, 0;\n"
    " @%p bra round;\n"
    " st.global.u32 [%address], %value;\n"
    " add.u32 %index, %index, %stride;\n"
    " bra again;\n"
    "finished:\n"
    " ret;\n}\n";

enum { LANES = 4, BYTES = 4 << 20, VALUES = BYTES / 4, JOINED = 40 };

static CUfunction work;
static CUstream streams[LANES];
static CUdeviceptr memory[LANES];
static uint32_t *source;

static void run_work(unsigned grid, CUstream stream, CUdeviceptr out, uint32_t n, uint32_t rounds)
{
    void *parameters[] = {&out, &n, &rounds};
    launch(work, grid, 128, stream, parameters);
}

static void wait_in_loop(int fixed, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        run_work(132, streams[0], memory[0], 132 * 128, 800);
        if (!fixed)
            CHECK(cuStreamSynchronize(streams[0]));
    }
}

static void pageable(int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        CHECK(cuMemcpyHtoDAsync(memory[0], source, BYTES, streams[0]));
        run_work(132, streams[0], memory[0], 132 * 128, 800);
    }
}

static void serial(int fixed, int turns)
{
    for (int turn = 0; turn < turns; turn++)
        for (int lane = 0; lane < LANES; lane++)
            run_work(8, streams[fixed ? lane : 0], memory[lane], 8 * 128, 8000);
}

static void tiny(int fixed, int turns)
{
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    for (int turn = 0; turn < turns; turn++) {
        if (executable != NULL) {
            CHECK(cuGraphLaunch(executable, streams[0]));
        } else {
            if (fixed)
                CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
            for (int i = 0; i < JOINED; i++)
                run_work(1, streams[0], memory[0], 128, 1);
            if (fixed) {
                CHECK(cuStreamEndCapture(streams[0], &graph));
                CHECK(cuGraphInstantiate(&executable, graph, 0));
                CHECK(cuGraphLaunch(executable, streams[0]));
            }
        }
        CHECK(cuStreamSynchronize(streams[0]));
    }
    if (executable != NULL) {
        CHECK(cuGraphExecDestroy(executable));
        CHECK(cuGraphDestroy(graph));
    }
}

static void shape(int fixed, int turns)
{
    for (int turn = 0; turn < turns; turn++)
        run_work(fixed ? 512 : 1, streams[0], memory[0], 512 * 128, 20);
}

static void rewrite(int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        source[0] = turn;
        CHECK(cuMemcpyHtoDAsync(memory[0], source, BYTES, streams[0]));
        CHECK(cuStreamSynchronize(streams[0]));
    }
}

/* The copies are synchronous, in the default stream, if `fixed`. */
static void cross(int fixed, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        CHECK(cuMemsetD32Async(memory[0], turn, VALUES, streams[0]));
        CHECK(cuStreamSynchronize(streams[0]));
        if (fixed)
            CHECK(cuMemcpyDtoD(memory[1], memory[0], BYTES));
        else
            CHECK(cuMemcpyDtoDAsync(memory[1], memory[0], BYTES, streams[1]));
    }
}

static void bring(int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        CHECK(cuMemcpyDtoHAsync(source + turn * 1024, memory[0] + turn * 4096, 4096, streams[0]));
        CHECK(cuStreamSynchronize(streams[0]));
    }
}

static void pieces(int turns)
{
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < LANES; i++)
            CHECK(cuMemcpyHtoDAsync(memory[0] + i * 4096, source + i * 1024, 4096, streams[0]));
}

static void spread(int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        CUdeviceptr from = memory[0] + turn * 4096;
        CHECK(cuMemcpyDtoDAsync(from + 4096, from, 4096, streams[0]));
    }
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "wait";
    int fixed = count > 2 && strcmp(words[2], "fixed") == 0;
    int turns = count > 2 + fixed ? atoi(words[2 + fixed]) : 400;
    begin();
    CUmodule module = load_ptx(PTX_WORK);
    work = function_of(module, "work");
    int is_pinned = fixed;
    if (is_pinned)
        CHECK(cuMemHostAlloc((void **)&source, BYTES, 0));
    else
        source = malloc(BYTES);
    for (uint32_t i = 0; i < VALUES; i++)
        source[i] = i;
    for (int lane = 0; lane < LANES; lane++) {
        CHECK(cuStreamCreate(&streams[lane], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc(&memory[lane], BYTES));
        CHECK(cuMemsetD32(memory[lane], 7 + lane, VALUES));
    }
    CHECK(cuCtxSynchronize());
    /* The driver loads code at the first launch. */
    run_work(1, streams[0], memory[0], 128, 1);
    CHECK(cuCtxSynchronize());
    uint64_t before = now();
    if (strcmp(name, "wait") == 0)
        wait_in_loop(fixed, turns);
    else if (strcmp(name, "pageable") == 0)
        pageable(turns);
    else if (strcmp(name, "serial") == 0)
        serial(fixed, turns);
    else if (strcmp(name, "tiny") == 0)
        tiny(fixed, turns);
    else if (strcmp(name, "rewrite") == 0)
        rewrite(turns);
    else if (strcmp(name, "cross") == 0)
        cross(fixed, turns);
    else if (strcmp(name, "bring") == 0)
        bring(turns);
    else if (strcmp(name, "pieces") == 0)
        pieces(turns);
    else if (strcmp(name, "spread") == 0)
        spread(turns);
    else
        shape(fixed, turns);
    CHECK(cuCtxSynchronize());
    show("loop in ns", now() - before);
    static uint32_t result[VALUES];
    for (int lane = 0; lane < LANES; lane++) {
        CHECK(cuMemcpyDtoH(result, memory[lane], BYTES));
        show_u32("memory", result, VALUES);
        CHECK(cuMemFree(memory[lane]));
        CHECK(cuStreamDestroy(streams[lane]));
    }
    CHECK(cuModuleUnload(module));
    if (is_pinned)
        CHECK(cuMemFreeHost(source));
    else
        free(source);
    end();
    return success();
}
