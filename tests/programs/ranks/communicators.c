/* A rank of four, with two communicators: one of all ranks, and one of each pair. A communicator is
 * a table in device memory with the memory of its ranks, which they share by IPC handles, and its
 * launches get the table, as those of NCCL do. The arguments are a case, a file that all ranks map,
 * and the rank. In "correct" the pairs launch theirs before or after the other one; in "order" rank
 * 2 exchanges two collectives; in "shape" it launches one with another grid; in "missing" rank 3
 * exits before its third one, and a signal ends the others; in "stopped" a signal ends all of them,
 * one a step behind; in "crashed" rank 0 crashes behind its third one, and rank 3, which sees that,
 * exits before it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "program.h"

enum { RANKS = 4 };
enum { BYTES = 4096, COMMUNICATORS = 2, STEPS = 4 };

static const char *const kernels =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry ncclDevKernel_AllReduce_Sum_f32_RING_LL(.param .u64 c) { ret; }\n"
    ".visible .entry ncclDevKernel_AllGather_RING_LL(.param .u64 c) { ret; }\n"
    ".visible .entry ncclDevKernel_SendRecv(.param .u64 c) { ret; }\n";

/* What all ranks have mapped; zeros at first. */
static struct board {
    unsigned arrived;
    CUipcMemHandle handles[RANKS][COMMUNICATORS];
} *board;

static const char *mode;

/* Waits until all ranks have come here that many times. */
static void meet(void)
{
    static unsigned meetings;
    __atomic_add_fetch(&board->arrived, 1, __ATOMIC_SEQ_CST);
    meetings++;
    while (__atomic_load_n(&board->arrived, __ATOMIC_SEQ_CST) < RANKS * meetings)
        usleep(1000);
}

static int is_mode(const char *name)
{
    return strcmp(mode, name) == 0;
}

static int run(int rank)
{
    begin();
    CUmodule module = load_ptx(kernels);
    CUfunction reduce = function_of(module, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    CUfunction gather = function_of(module, "ncclDevKernel_AllGather_RING_LL");
    CUfunction send = function_of(module, "ncclDevKernel_SendRecv");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr own[COMMUNICATORS], tables[COMMUNICATORS];
    CUdeviceptr peers[COMMUNICATORS][RANKS] = {{0}};
    for (int i = 0; i < COMMUNICATORS; i++) {
        CHECK(cuMemAlloc(&own[i], BYTES));
        CHECK(cuIpcGetMemHandle(&board->handles[rank][i], own[i]));
        CHECK(cuMemAlloc(&tables[i], BYTES));
    }
    meet();
    for (int i = 0; i < COMMUNICATORS; i++) {
        for (int peer = 0; peer < RANKS; peer++) {
            if (i == 1 && peer / 2 != rank / 2)
                continue;
            if (peer == rank)
                peers[i][peer] = own[i];
            else
                CHECK(cuIpcOpenMemHandle(&peers[i][peer], board->handles[peer][i],
                                         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        }
        // As NCCL does, which does not say that the source is on the host.
        if (i == 0)
            CHECK(cuMemcpy(tables[i], (CUdeviceptr)peers[i], sizeof peers[i]));
        else
            CHECK(cuMemcpyHtoD(tables[i], peers[i], sizeof peers[i]));
    }
    CHECK(cuStreamSynchronize(NULL));
    meet();

    void *all[] = {&tables[0]}, *pair[] = {&tables[1]};
    for (int step = 0; step < STEPS; step++) {
        if ((is_mode("missing") || is_mode("crashed")) && rank == 3 && step == 1)
            return 1;
        CUfunction first = reduce, second = gather;
        if (is_mode("order") && rank == 2 && step == 2) {
            first = gather;
            second = reduce;
        }
        int is_wide = is_mode("shape") && rank == 2 && step == 2;
        /* The two ranks of a pair agree, but other pairs need not. */
        if (rank < 2)
            launch(reduce, 2, 32, stream, pair);
        launch(first, is_wide ? 4 : 2, 32, stream, all);
        launch(second, 2, 32, stream, all);
        if (rank >= 2)
            launch(reduce, 2, 32, stream, pair);
        /* Between two ranks, one may send more than the other receives at once. */
        for (int i = 0; i < rank % 2 + 1; i++)
            launch(send, 1, 32, stream, pair);
        if (is_mode("crashed") && rank == 0 && step == 1)
            abort();
        if ((is_mode("missing") || is_mode("crashed")) && step == 1)
            raise(SIGTERM);
        if (is_mode("stopped") && step == (rank == 1 ? 0 : 1)) {
            /* A shell starts what runs in the background with this signal ignored. */
            signal(SIGINT, SIG_DFL);
            raise(SIGINT);
        }
    }
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < COMMUNICATORS; i++)
        for (int peer = 0; peer < RANKS; peer++)
            if (peer != rank && peers[i][peer] != 0)
                CHECK(cuIpcCloseMemHandle(peers[i][peer]));
    meet();
    for (int i = 0; i < COMMUNICATORS; i++) {
        CHECK(cuMemFree(tables[i]));
        CHECK(cuMemFree(own[i]));
    }
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return 0;
}

int main(int count, char **arguments)
{
    EXPECT(count == 4);
    mode = arguments[1];
    int file = open(arguments[2], O_RDWR | O_CREAT, 0600);
    EXPECT(file >= 0 && ftruncate(file, sizeof *board) == 0);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(board != MAP_FAILED);
    return run(atoi(arguments[3]));
}
