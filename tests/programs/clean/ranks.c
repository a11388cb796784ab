/* Two processes, started anew with RANK set as launchers do, each on a device of its own where
 * there are two; they work at the same time, and the one that started them shows what they print in
 * the order of their ranks. */
// null-driver: CUTAPE_NULL_DEVICES=2
// not-played: it starts two processes, and a trace is that of one
#include "program.h"

#include <sys/wait.h>

enum { RANKS = 2, COUNT = 20000 };

static int work(int rank)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    int count = 0;
    CHECK(cuDeviceGetCount(&count));
    CHECK(cuDeviceGet(&device, rank % count));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    static uint32_t a[COUNT], b[COUNT], c[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        a[i] = i;
        b[i] = 1000 * (rank + 1);
    }
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUdeviceptr da = 0, db = 0, dc = 0;
    CHECK(cuMemAlloc(&da, sizeof a));
    CHECK(cuMemAlloc(&db, sizeof b));
    CHECK(cuMemAlloc(&dc, sizeof c));
    CHECK(cuMemcpyHtoD(da, a, sizeof a));
    CHECK(cuMemcpyHtoD(db, b, sizeof b));
    CHECK(cuMemsetD8(dc, 0, sizeof c));
    uint32_t number = COUNT;
    void *parameters[] = {&da, &db, &dc, &number};
    launch(function_of(module, "vector_add"), 16, 256, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(c, dc, sizeof c));
    printf("rank %d, ", rank);
    show_u32("vector_add", c, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT_KERNEL(c[i] == i + 1000 * (rank + 1));
    CHECK(cuMemFree(da));
    CHECK(cuMemFree(db));
    CHECK(cuMemFree(dc));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}

int main(int count, char **arguments)
{
    (void)count;
    const char *rank = getenv("RANK");
    if (rank != NULL)
        return work(atoi(rank));

    pid_t children[RANKS];
    int outputs[RANKS];
    for (int i = 0; i < RANKS; i++) {
        int ends[2];
        EXPECT(pipe(ends) == 0);
        children[i] = fork();
        EXPECT(children[i] >= 0);
        if (children[i] == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", i);
            EXPECT(setenv("RANK", number, 1) == 0 && setenv("LOCAL_RANK", number, 1) == 0);
            EXPECT(setenv("WORLD_SIZE", "2", 1) == 0);
            EXPECT(dup2(ends[1], STDOUT_FILENO) >= 0);
            close(ends[0]);
            close(ends[1]);
            execv("/proc/self/exe", arguments);
            _exit(127);
        }
        close(ends[1]);
        outputs[i] = ends[0];
    }
    for (int i = 0; i < RANKS; i++) {
        char text[4096];
        ssize_t length = 0;
        while ((length = read(outputs[i], text, sizeof text)) > 0)
            fwrite(text, 1, (size_t)length, stdout);
        close(outputs[i]);
        int status = 0;
        EXPECT(waitpid(children[i], &status, 0) == children[i]);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return success();
}
