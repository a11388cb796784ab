/* symbols NAME FILE: opens NAME and initialises; then finds FILE among what is mapped, and two functions in its symbol table. */
#define _GNU_SOURCE
#include "loading.h"

#include <limits.h>
#include <link.h>

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
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t length = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            /* The loader has relocated these addresses in place. */
            for (const ElfW(Dyn) *entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); entry->d_tag; entry++) {
                if (entry->d_tag == DT_SYMTAB)
                    symbols = (const void *)entry->d_un.d_ptr;
                if (entry->d_tag == DT_STRTAB)
                    strings = (const void *)entry->d_un.d_ptr;
                if (entry->d_tag == DT_STRSZ)
                    length = entry->d_un.d_val;
            }
    /* The string table follows the symbols in what all common linkers write, perhaps with something else between. */
    for (const ElfW(Sym) *symbol = symbols; symbols && (const char *)symbol < strings; symbol++)
        for (int i = 0; i < 2; i++)
            if (symbol->st_value && symbol->st_name < length && !strcmp(strings + symbol->st_name, names[i]))
                found[i] = (number_function *)(info->dlpi_addr + symbol->st_value);
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
