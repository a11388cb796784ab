// A child that was forked after cuInit uses the driver; the control's child was forked before.
// expect: init-fork-child-use
#include "program.h"

#include <sys/wait.h>

int main(void)
{
#ifdef VIOLATE
    begin();
#endif
    fflush(stdout);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        int count = 0;
#ifndef VIOLATE
        CHECK(cuInit(0));
#endif
        MISUSE(cuDeviceGetCount(&count));
        _exit(0);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
#ifndef VIOLATE
    begin();
#endif
    end();
    return success();
}
