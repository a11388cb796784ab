/* symbols NAME FILE: opens NAME and initialises; then finds FILE among what is mapped, and two
 * functions in its symbol table. */
#define _GNU_SOURCE
#include "loading.h"
#include "../symbol_table.h"

#include <limits.h>

static const char *wanted;
static number_function *found[2];

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    static const char *const names[2] = {"cuDriverGetVersion", "cuDeviceGetCount"};
    char path[PATH_MAX];
    (void)size;
    (void)data;
    if (!info->dlpi_name[0] || !realpath(info->dlpi_name, path) || strcmp(path, wanted))
        return 0;
    for (int i = 0; i < 2; i++)
        found[i] = (number_function *)defined_symbol(info, names[i]);
    return 1;
}

int main(int count, char **words)
{
    char path[PATH_MAX];
    void *library = count > 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    init_function *init = library ? (init_function *)dlsym(library, "cuInit") : NULL;
    if (!init || init(0) != 0 || !realpath(words[2], path))
        return ask_opened(NULL);
    wanted = path;
    dl_iterate_phdr(visit, NULL);
    return ask(init, found[0], found[1]);
}
