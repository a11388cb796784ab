/* Functions of the library that really is the driver, past the recorder: as libraries call them
 * through the driver's private tables. With a recorder that patches the driver's code, the calls
 * are recorded all the same. */
#ifndef UNRECORDED_H
#define UNRECORDED_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The driver's own function of that name, `otherwise` if its library is not found. */
static void *unrecorded(const char *function, void *otherwise)
{
    char line[4096];
    void *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && found == NULL && fgets(line, sizeof line, maps) != NULL) {
        char *path = strchr(line, '/');
        if (path == NULL || strstr(path, "interposer") != NULL)
            continue;
        path[strcspn(path, "\n")] = '\0';
        char *name = strrchr(path, '/');
        if (strstr(name, "libcuda.so") == NULL && strstr(name, "cutape_null") == NULL)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        if (library != NULL)
            found = dlsym(library, function);
    }
    if (maps != NULL)
        fclose(maps);
    return found != NULL ? found : otherwise;
}

#endif
