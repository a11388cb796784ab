/* fork NAME: forks a child that has libcuda mapped, makes no call, and lives longer than the check
 * for bypassed calls takes. */
#include "loading.h"

#include <sys/wait.h>

int main(int count, char **words)
{
    int status = count > 1 ? ask_opened(dlopen(words[1], RTLD_NOW)) : 1;
    pid_t child = fork();
    if (child == 0) {
        sleep(4);
        _exit(0);
    }
    wait(NULL);
    return status;
}
