/* A plugin that opens the library that its caller names. */
#include "loading.h"

int run(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);
    int (*inner)(const char *) = library ? (int (*)(const char *))dlsym(library, "run") : NULL;
    return inner ? inner(NULL) : ask_opened(library);
}
