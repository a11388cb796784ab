/* Four ranks that meet at collectives: each step one of work and one launch of a kernel with the name
 * of one of NCCL. The arguments are the number of steps, the rank that comes late, and the step at
 * which that rank ends (0: it does not); with a fourth one the kernel is captured into a graph with a
 * second one of its kind, and the graph is launched. The ranks are forked before the first call of
 * the driver. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "nvtx.h"
#include "program.h"

enum { RANKS = 4 };

static const char *const kernels =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry ncclDevKernel_AllReduce_Sum_f32_RING_LL() { ret; }\n"
    ".visible .entry work() { ret; }\n";

/* A graph of two launches, captured. */
static CUgraphExec captured(CUfunction kernel)
{
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(kernel, 1, 32, stream, NULL);
    launch(kernel, 1, 32, stream, NULL);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(stream));
    return executable;
}

static int run(int rank, int steps, int late, int last, int in_graph, pthread_barrier_t *barrier)
{
    nvtx_attach();
    begin();
    CUmodule module = load_ptx(kernels);
    CUfunction work = function_of(module, "work");
    CUfunction reduce = function_of(module, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    CUgraphExec executable = in_graph ? captured(reduce) : NULL;
    for (int step = 0; step < steps; step++) {
        nvtx_push("step");
        launch(work, 1, 32, NULL, NULL);
        if (rank == late) {
            if (last != 0 && step == last)
                return 0;
            usleep(3000);
        }
        if (in_graph)
            CHECK(cuGraphLaunch(executable, NULL));
        else
            launch(reduce, 1, 32, NULL, NULL);
        /* Without a device nothing waits for the others. */
        if (last == 0)
            pthread_barrier_wait(barrier);
        nvtx_pop();
    }
    CHECK(cuCtxSynchronize());
    if (in_graph)
        CHECK(cuGraphExecDestroy(executable));
    CHECK(cuModuleUnload(module));
    end();
    return 0;
}

int main(int count, char **arguments)
{
    EXPECT(count == 4 || count == 5);
    pthread_barrier_t *barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(barrier != MAP_FAILED);
    pthread_barrierattr_t shared;
    EXPECT(pthread_barrierattr_init(&shared) == 0);
    EXPECT(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
    EXPECT(pthread_barrier_init(barrier, &shared, RANKS) == 0);
    pid_t children[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        EXPECT(children[rank] >= 0);
        if (children[rank] == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", rank);
            EXPECT(setenv("RANK", number, 1) == 0 && setenv("WORLD_SIZE", "4", 1) == 0);
            _exit(run(rank, atoi(arguments[1]), atoi(arguments[2]), atoi(arguments[3]),
                      count == 5, barrier));
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        EXPECT(waitpid(children[rank], &status, 0) == children[rank]);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return success();
}
