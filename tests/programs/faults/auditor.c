/* Another auditing library (rtld-audit(7)) in the same process: says that it has seen the C
 * library. */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <unistd.h>

unsigned la_version(unsigned version)
{
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    static const char line[] = "another auditor has seen libc\n";
    (void)cookie;
    if (space == LM_ID_BASE && strstr(map->l_name, "/libc.so.6"))
        return (unsigned)(write(STDERR_FILENO, line, sizeof line - 1) < 0);
    return 0;
}
