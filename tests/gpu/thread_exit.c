/* What happens when a thread ends while work in its per-thread default stream is not complete: another
 * thread then waits for the context. Each case is a process of its own; one that has not ended after
 * four seconds is killed. Prints a table. None of these cases hangs; a longer program does
 * (results/2026-11-26-h200-580.159.04-thread-exit.txt).
 *
 *   cc -std=gnu11 -O1 -Itests/programs/include -Itests/programs tests/gpu/thread_exit.c \
 *       -o thread_exit DRIVER/libcuda.so.1 -lpthread
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* Runs for a while, by the clock of the device. */
static const char SPIN[] = PTX_HEAD ".visible .entry spin(.param .u64 nanoseconds)\n{\n"
    " .reg .u64 %now, %end;\n .reg .pred %p;\n"
    " ld.param.u64 %end, [nanoseconds];\n mov.u64 %now, %globaltimer;\n add.u64 %end, %end, %now;\n"
    "again:\n mov.u64 %now, %globaltimer;\n setp.lt.u64 %p, %now, %end;\n @%p bra again;\n ret;\n}\n";

enum work { MEMSET, KERNEL, LONG_KERNEL, LEGACY_BEHIND, BLOCKING_BEHIND };
static const char *const WORKS[] = {"memset", "kernel", "kernel of 20 ms", "kernel, then memset in the legacy stream",
                                    "kernel, then kernel in a blocking stream"};
enum end { PENDING, ALIVE };
static const char *const ENDS[] = {"ends at once", "ends after the wait of main"};

static CUcontext used;
static CUfunction spin;
static CUdeviceptr memory;
static CUstream blocking;
static enum work work;
static enum end end_of_thread;
static volatile int is_over;

static void run_spin(CUstream stream, uint64_t nanoseconds)
{
    void *parameters[] = {&nanoseconds};
    launch(spin, 1, 1, stream, parameters);
}

static void *run(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(used));
    if (work == MEMSET)
        CHECK(cuMemsetD8Async(memory, 1, 4096, CU_STREAM_PER_THREAD));
    else
        run_spin(CU_STREAM_PER_THREAD, work == LONG_KERNEL ? 20000000 : 1000);
    if (work == LEGACY_BEHIND)
        CHECK(cuMemsetD8Async(memory, 1, 4096, CU_STREAM_LEGACY));
    if (work == BLOCKING_BEHIND)
        run_spin(blocking, 1000);
    while (end_of_thread == ALIVE && !is_over)
        usleep(100);
    return NULL;
}

static int one(int is_primary)
{
    pthread_t thread;
    begin();
    used = context;
    if (!is_primary)
        CHECK(cuCtxCreate(&used, NULL, 0, device));
    spin = function_of(load_ptx(SPIN), "spin");
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuStreamCreate(&blocking, 0));
    CHECK(cuCtxSynchronize());
    pthread_create(&thread, NULL, run, NULL);
    if (end_of_thread != ALIVE)
        pthread_join(thread, NULL);
    else
        usleep(100000);
    CHECK(cuCtxSynchronize());
    is_over = 1;
    return 0;
}

int main(void)
{
    printf("%-10s %-44s %-30s %s\n", "context", "work", "thread", "result");
    for (int is_primary = 1; is_primary >= 0; is_primary--)
        for (work = MEMSET; work <= BLOCKING_BEHIND; work++)
            for (end_of_thread = PENDING; end_of_thread <= ALIVE; end_of_thread++) {
                fflush(stdout);
                pid_t child = fork();
                if (child == 0)
                    _exit(one(is_primary));
                int status = 0, waited = 0;
                while (waitpid(child, &status, WNOHANG) == 0 && waited++ < 40)
                    usleep(100000);
                int hangs = waited > 40;
                if (hangs) {
                    kill(child, SIGKILL);
                    waitpid(child, &status, 0);
                }
                printf("%-10s %-44s %-30s %s\n", is_primary ? "primary" : "created", WORKS[work],
                       ENDS[end_of_thread], hangs ? "HANGS" : status ? "fails" : "ends");
            }
    return 0;
}
