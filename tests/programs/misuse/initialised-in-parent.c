// A process initialises the driver and forks a worker, which initialises it again; the control's
// worker is a new program.
// https://github.com/inducer/pycuda/issues/137
// expect: init-fork-child-use
// replay-skips: cuInit
#include "program.h"

#include <sys/wait.h>

static int work(void)
{
    CUdevice first = 0;
    if (cuInit(0) != CUDA_SUCCESS)
        return 0; /* the worker gives up */
    CHECK(cuDeviceGet(&first, 0));
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return work();
    begin();
    fflush(stdout);
    pid_t worker = fork();
    EXPECT(worker >= 0);
    if (worker == 0) {
#ifdef VIOLATE
        _exit(work());
#else
        execl("/proc/self/exe", arguments[0], "worker", NULL);
        _exit(1);
#endif
    }
    int status = 0;
    EXPECT(waitpid(worker, &status, 0) == worker && status == 0);
    end();
    return success();
}
