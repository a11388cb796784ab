/* scalar_calls LIBRARY COUNT: nanoseconds that one call of cuCtxGetCurrent takes, over COUNT calls; with COUNT 0 only opens. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **words)
{
    void *library = count > 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    long calls = count > 2 ? atol(words[2]) : 0;
    if (!library)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*get)(void **) = (int (*)(void **))dlsym(library, "cuCtxGetCurrent");
    struct timespec begun, ended;
    void *context;
    if (calls && (init(0) || get(&context)))
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < calls; i++)
        get(&context);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    if (calls)
        printf("%.2f\n", ((ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec)) / calls);
    return 0;
}
