/* scalar_calls LIBRARY COUNT [OTHER]: prints the nanoseconds of a call of cuCtxGetCurrent, the mean
 * of COUNT calls; with COUNT 0 it only opens the library. With OTHER, the calls alternate between
 * the two libraries, and it prints for each the least mean of 1000 calls. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PART = 1000 };
typedef int get_function(void **);

static double nanoseconds_of(get_function *get, long calls)
{
    struct timespec begun, ended;
    void *context;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < calls; i++)
        get(&context);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return ((ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec)) / calls;
}

int main(int count, char **words)
{
    void *library = count > 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    void *other = count > 3 ? dlopen(words[3], RTLD_NOW) : NULL;
    long calls = count > 2 ? atol(words[2]) : 0;
    if (!library || (count > 3 && !other))
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    get_function *get[2] = {(get_function *)dlsym(library, "cuCtxGetCurrent"), NULL};
    void *context;
    if (calls && (init(0) || get[0](&context)))
        return 1;
    if (calls && other) {
        double least[2] = {1e9, 1e9};
        get[1] = (get_function *)dlsym(other, "cuCtxGetCurrent");
        for (long done = 0; done < calls; done += PART)
            for (int i = 0; i < 2; i++) {
                double cost = nanoseconds_of(get[i], PART);
                if (cost < least[i])
                    least[i] = cost;
            }
        printf("%.2f %.2f\n", least[0], least[1]);
    } else if (calls) {
        printf("%.2f\n", nanoseconds_of(get[0], calls));
    }
    return 0;
}
