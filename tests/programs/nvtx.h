/* A client of NVTX 3 in its own words: it looks for the library that NVTX_INJECTION64_PATH names,
 * and gives that its tables of functions, as the header-only library of NVTX does at the first call.
 * Without such a library every function does nothing. */
#ifndef CUTAPE_NVTX_H
#define CUTAPE_NVTX_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
    } payload;
    int32_t message_type;
    union {
        const char *bytes;
        const wchar_t *wide;
        void *registered;
    } message;
} NvtxAttributes;

typedef void (*NvtxFunction)(void);

/* The functions, by the numbers of the modules CORE (1) and CORE2 (5). */
static NvtxFunction nvtx_core[16], nvtx_domains[16];
static NvtxFunction *nvtx_core_places[17], *nvtx_domain_places[17];

static int nvtx_function_table(uint32_t module, NvtxFunction ***table, unsigned *size)
{
    if (module != 1 && module != 5)
        return 0;
    *table = module == 1 ? nvtx_core_places : nvtx_domain_places;
    *size = 16;
    return 1;
}

static const struct {
    size_t size;
    int (*function_table)(uint32_t module, NvtxFunction ***table, unsigned *size);
} nvtx_callbacks = {sizeof nvtx_callbacks, nvtx_function_table};

static const void *nvtx_export_table(uint32_t id)
{
    return id == 1 ? &nvtx_callbacks : NULL;
}

/* Whether a library has attached itself. */
static inline int nvtx_attach(void)
{
    for (int i = 1; i < 16; i++) {
        nvtx_core_places[i] = &nvtx_core[i];
        nvtx_domain_places[i] = &nvtx_domains[i];
    }
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
    if (library == NULL)
        return 0;
    int (*initialize)(const void *(*)(uint32_t)) =
        (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2");
    if (initialize != NULL && initialize(nvtx_export_table))
        return 1;
    dlclose(library);
    return 0;
}

/* Calls a function of a table; without a library the result is `without`. */
#define NVTX_CALL(table, number, type, without, ...) \
    (table[number] != NULL ? ((type)table[number])(__VA_ARGS__) : (without))

static inline void nvtx_mark(const char *text)
{
    NVTX_CALL(nvtx_core, 2, void (*)(const char *), (void)0, text);
}

static inline int nvtx_push(const char *name)
{
    return NVTX_CALL(nvtx_core, 9, int (*)(const char *), -2, name);
}

static inline int nvtx_push_wide(const wchar_t *name)
{
    return NVTX_CALL(nvtx_core, 10, int (*)(const wchar_t *), -2, name);
}

static inline int nvtx_pop(void)
{
    return NVTX_CALL(nvtx_core, 11, int (*)(void), -2);
}

static inline uint64_t nvtx_start(const char *name)
{
    return NVTX_CALL(nvtx_core, 5, uint64_t(*)(const char *), 0, name);
}

static inline void nvtx_end(uint64_t id)
{
    NVTX_CALL(nvtx_core, 7, void (*)(uint64_t), (void)0, id);
}

static inline void nvtx_mark_attributes(const NvtxAttributes *attributes)
{
    NVTX_CALL(nvtx_core, 1, void (*)(const NvtxAttributes *), (void)0, attributes);
}

static inline void *nvtx_domain(const char *name)
{
    return NVTX_CALL(nvtx_domains, 12, void *(*)(const char *), NULL, name);
}

static inline void *nvtx_register(void *domain, const char *text)
{
    return NVTX_CALL(nvtx_domains, 10, void *(*)(void *, const char *), NULL, domain, text);
}

static inline int nvtx_domain_push(void *domain, const NvtxAttributes *attributes)
{
    return NVTX_CALL(nvtx_domains, 4, int (*)(void *, const NvtxAttributes *), -2, domain,
                     attributes);
}

static inline int nvtx_domain_pop(void *domain)
{
    return NVTX_CALL(nvtx_domains, 5, int (*)(void *), -2, domain);
}

#endif
