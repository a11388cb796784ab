/* plugin LIBRARY [NAME]: loads a plugin with RTLD_DEEPBIND, which prefers its own symbols to those
 * loaded before. */
#define _GNU_SOURCE
#include "loading.h"

int main(int count, char **words)
{
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
    int (*run)(const char *) = library ? (int (*)(const char *))dlsym(library, "run") : NULL;
    return run ? run(count > 2 ? words[2] : NULL) : ask_opened(NULL);
}
