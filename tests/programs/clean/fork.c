/* A child process without CUDA while the parent uses it, and a child started before the driver that
 * uses it by itself. */
#include "program.h"

#include <sys/wait.h>

static void copy_there_and_back(const char *label, uint32_t value)
{
    begin();
    CUdeviceptr memory = 0;
    uint32_t back = 0;
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemcpyHtoD(memory, &value, sizeof value));
    CHECK(cuMemcpyDtoH(&back, memory, sizeof back));
    EXPECT(back == value);
    show(label, back);
    CHECK(cuMemFree(memory));
    end();
}

static void wait_for(pid_t child, int wanted)
{
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

int main(void)
{
    pid_t child = fork(); /* before cuInit: this child may use the driver */
    EXPECT(child >= 0);
    if (child == 0) {
        copy_there_and_back("child", 11);
        fflush(stdout);
        _exit(7);
    }
    wait_for(child, 7);

    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    fflush(stdout);
    int ends[2];
    EXPECT(pipe(ends) == 0);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        static const char TEXT[] = "no CUDA here";
        _exit(write(ends[1], TEXT, sizeof TEXT) == sizeof TEXT ? 5 : 6);
    }
    char text[64] = "";
    EXPECT(read(ends[0], text, sizeof text) == 13);
    wait_for(child, 5);
    printf("child without CUDA: %s\n", text);
    CHECK(cuMemsetD8(memory, 3, 4096)); /* the parent goes on */
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    end();
    copy_there_and_back("parent", 12);
    return success();
}
