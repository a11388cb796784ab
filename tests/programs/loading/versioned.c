/* versioned NAME: looks functions up with dlvsym if the library has symbol versions. */
#define _GNU_SOURCE
#include "loading.h"

static void *look_up(void *library, const char *name)
{
    void *found = dlvsym(library, name, "libcuda.so.1");
    return found ? found : dlsym(library, name);
}

int main(int count, char **words)
{
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (!library)
        return ask_opened(NULL);
    return ask((init_function *)look_up(library, "cuInit"),
               (number_function *)look_up(library, "cuDriverGetVersion"),
               (number_function *)look_up(library, "cuDeviceGetCount"));
}
