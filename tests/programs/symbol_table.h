/* Functions by name in the symbol table of something that is mapped, without asking the loader. */
#ifndef SYMBOL_TABLE_H
#define SYMBOL_TABLE_H

#include <link.h>
#include <string.h>

/* The address of a symbol that the object defines, NULL if it defines none of that name. */
static void *defined_symbol(const struct dl_phdr_info *info, const char *name)
{
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t length = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            const ElfW(Addr) dynamic = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            /* The loader has relocated these addresses, except in the kernel's own object. */
            for (const ElfW(Dyn) *entry = (const void *)dynamic; entry->d_tag; entry++) {
                if (entry->d_un.d_ptr < info->dlpi_addr && entry->d_tag != DT_STRSZ)
                    continue;
                if (entry->d_tag == DT_SYMTAB)
                    symbols = (const void *)entry->d_un.d_ptr;
                if (entry->d_tag == DT_STRTAB)
                    strings = (const void *)entry->d_un.d_ptr;
                if (entry->d_tag == DT_STRSZ)
                    length = entry->d_un.d_val;
            }
        }
    /* In the output of all common linkers the string table follows the symbols, possibly with
     * something between them. */
    for (const ElfW(Sym) *symbol = symbols; symbol && (const char *)symbol < strings; symbol++)
        if (symbol->st_value && symbol->st_name < length
            && !strcmp(strings + symbol->st_name, name))
            return (void *)(info->dlpi_addr + symbol->st_value);
    return NULL;
}

#endif
