/* What every program here does with the driver, however it got there: three calls, and prints what
 * they answer. */
#ifndef LOADING_H
#define LOADING_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int init_function(unsigned);
typedef int number_function(int *);

static int ask(init_function *init, number_function *get_version, number_function *get_count)
{
    int version = -1, count = -1;
    if (!init || !get_version || !get_count) {
        fprintf(stderr, "a function of the driver was not found\n");
        return 1;
    }
    int results[3] = {init(0), get_version(&version), get_count(&count)};
    /* Each line by one call of the system: MPICH's launcher passes on what it reads, and tears a
     * line that comes in two. */
    dprintf(STDOUT_FILENO, "results %d %d %d, version %d, devices %d\n", results[0], results[1],
            results[2], version, count);
    dprintf(STDOUT_FILENO, "EXIT-SUCCESS\n");
    /* For those who look at a running process. */
    if (getenv("LOADING_STAY"))
        sleep(atoi(getenv("LOADING_STAY")));
    return 0;
}

static __attribute__((unused)) int ask_opened(void *library)
{
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return ask((init_function *)dlsym(library, "cuInit"),
               (number_function *)dlsym(library, "cuDriverGetVersion"),
               (number_function *)dlsym(library, "cuDeviceGetCount"));
}

#endif
