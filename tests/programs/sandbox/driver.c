// A driver that does harm when it is loaded: it writes $HARM_FILE, opens a connection and starts a
// program, and writes to $HARM_REPORT what succeeded. What it is asked, the driver that it is linked
// to does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((constructor)) static void harm(void)
{
    const char *report = getenv("HARM_REPORT");
    FILE *out = report == NULL ? NULL : fopen(report, "w");
    if (out == NULL)
        return;
    int file = open(getenv("HARM_FILE"), O_WRONLY | O_CREAT, 0600);
    fprintf(out, "writes %d\n", file >= 0);
    fprintf(out, "connects %d\n", socket(AF_INET, SOCK_STREAM, 0) >= 0);
    fflush(out);
    pid_t child = fork();
    if (child == 0) {
        execlp("true", "true", NULL);
        _exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    fprintf(out, "starts %d\n", status == 0);
    fclose(out);
}

int cuInit(unsigned flags)
{
    int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
    return next(flags);
}
