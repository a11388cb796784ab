/* A tool for NVTX, for the tests of counters: it adds a line "PROCESS CALL" to the file that
 * CUTAPE_TESTS_NVTX_RANGES names for each range cutape.call.CALL inside a range cutape. As tools do,
 * it takes the tables of several modules, and insists that they are there. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);

struct callbacks {
    size_t size;
    int (*function_table)(uint32_t module, Function ***table, unsigned *size);
};

static _Thread_local int depth, is_inside;

static int push(const char *name)
{
    static const char prefix[] = "cutape.call.";
    if (strcmp(name, "cutape") == 0)
        is_inside = 1;
    else if (is_inside && strncmp(name, prefix, sizeof prefix - 1) == 0) {
        FILE *file = fopen(getenv("CUTAPE_TESTS_NVTX_RANGES"), "a");
        if (file != NULL) {
            fprintf(file, "%d %s\n", (int)getpid(), name + sizeof prefix - 1);
            fclose(file);
        }
    }
    return depth++;
}

static int pop(void)
{
    if (--depth == 0)
        is_inside = 0;
    return depth;
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(const void *(*export_table)(uint32_t))
{
    const struct callbacks *callbacks = export_table(1);
    if (callbacks == NULL || callbacks->size < sizeof *callbacks || export_table(77) != NULL)
        return 0;
    for (uint32_t module = 1; module <= 5; module++) {
        Function **table = NULL;
        unsigned size = 0;
        if (!callbacks->function_table(module, &table, &size) || size < 12)
            return 0;
        for (unsigned number = 1; number < size; number++)
            *table[number] = (Function)abort;
        if (module == 1) {
            *table[9] = (Function)push;
            *table[11] = (Function)pop;
        }
    }
    return 1;
}
