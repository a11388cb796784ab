/* fork NAME: a child that has all that its parent has, makes no call, and lives for longer than one
 * looks at it. */
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
