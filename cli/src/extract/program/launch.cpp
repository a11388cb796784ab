// Launches one kernel as a recorded program did, and compares what it writes.
//
//     launch [OPTIONS] [LAUNCH.txt]
//
// The text file describes the launch: image, kernel, grid, parameters, and the memory that the
// kernel can reach, before and after. It can be edited. Memory is placed at its recorded addresses,
// because parameters and memory hold pointers. Nothing but the CUDA driver (libcuda.so.1) is
// needed. Options:
//
//     --driver PATH      load this driver
//     --device N         use this device instead of 0
//     --repeat N         time N launches (default 10)
//     --tolerance T=X    if bits differ, compare as numbers of type T (f16, bf16, f32, f64):
//                        they agree if they differ by at most X times the largest of 1 and both
//
// The exit status is 0 if all memory is as recorded, 1 if not, 2 if the launch cannot be made here.
// The file is C++11 and C99.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>

typedef uint64_t u64;

// The driver API, as far as it is used (CUDA Driver API, cuda.h).
enum { SLOT = 32 << 20, GRANULE = 2 << 20, ATTRIBUTE_VALUE_BYTES = 64 };
typedef struct { unsigned id, padding; unsigned char value[ATTRIBUTE_VALUE_BYTES]; } Attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    Attribute *attributes;
    unsigned count;
} Config;
typedef struct { int type, handle_types, location, id; void *metadata; u64 flags; } MemoryProperties;
typedef struct { int location, id, access; } MemoryAccess;
typedef char attributes_are_72_bytes[sizeof(Attribute) == 72 ? 1 : -1];
typedef char configurations_are_56_bytes[sizeof(Config) == 56 ? 1 : -1];

#define FUNCTIONS(X) \
    X(cuInit, (unsigned)) \
    X(cuDriverGetVersion, (int *)) \
    X(cuDeviceGet, (int *, int)) \
    X(cuDeviceGetName, (char *, int, int)) \
    X(cuDeviceGetAttribute, (int *, int, int)) \
    X(cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuCtxSetCurrent, (void *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuCtxGetLimit, (size_t *, int)) \
    X(cuCtxSetLimit, (int, size_t)) \
    X(cuGetErrorName, (int, const char **)) \
    X(cuMemAddressReserve, (u64 *, size_t, size_t, u64, u64)) \
    X(cuMemAddressFree, (u64, size_t)) \
    X(cuMemCreate, (u64 *, size_t, const MemoryProperties *, u64)) \
    X(cuMemMap, (u64, size_t, size_t, u64, u64)) \
    X(cuMemSetAccess, (u64, size_t, const MemoryAccess *, size_t)) \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    X(cuMemHostGetDevicePointer_v2, (u64 *, void *, unsigned)) \
    X(cuMemcpyHtoD_v2, (u64, const void *, size_t)) \
    X(cuMemcpyDtoH_v2, (void *, u64, size_t)) \
    X(cuModuleLoadData, (void **, const void *)) \
    X(cuModuleGetFunction, (void **, void *, const char *)) \
    X(cuModuleGetGlobal_v2, (u64 *, size_t *, void *, const char *)) \
    X(cuFuncGetAttribute, (int *, int, void *)) \
    X(cuFuncSetAttribute, (void *, int, int)) \
    X(cuStreamCreate, (void **, unsigned)) \
    X(cuEventCreate, (void **, unsigned)) \
    X(cuEventRecord, (void *, void *)) \
    X(cuEventSynchronize, (void *)) \
    X(cuEventElapsedTime, (float *, void *, void *)) \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                       unsigned, void *, void **, void **))
#define DECLARE(name, arguments) static int (*name) arguments;
FUNCTIONS(DECLARE)
static int (*cuLaunchKernelEx)(const Config *, void *, void **, void **); // since CUDA 11.8

// A piece of contents in the file, or zeros.
typedef struct { u64 at, length, file; int is_zero, is_after; } Piece;

// Memory at a fixed address, or a variable of the module.
typedef struct {
    u64 address, length;
    int is_host, is_as_loaded;
    char *variable; // NULL for memory
    Piece *pieces;
    size_t count;
    unsigned char *before, *expected, *first;
} Memory;

typedef struct { u64 offset, addend; size_t memory; } Relocation;

static struct {
    char *folder, *kernel, *image, *contents, *source, *device_name;
    int major, minor;
    Config config;
    unsigned char *parameters;
    size_t parameter_bytes;
    size_t *offsets, offset_count;
    struct { int id; u64 value; } limits[16];
    struct { int id, value; } settings[16];
    size_t limit_count, setting_count;
    Relocation *relocations;
    size_t relocation_count;
    Memory *memory;
    size_t memory_count;
} L;

static const char *driver_path, *description = "launch.txt";
static int device_number, repeat = 10;
static double tolerance = -1;
static const char *tolerance_type;
static char **arguments;

// Ends with status 2: the launch cannot be made here.
static void cannot(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    printf("result   refused: ");
    vprintf(format, rest);
    printf("\n");
    va_end(rest);
    exit(2);
}

static const char *name_of(int code)
{
    static char number[32];
    const char *name = NULL;
    if (cuGetErrorName && cuGetErrorName(code, &name) == 0 && name) return name;
    snprintf(number, sizeof number, "result %d", code);
    return number;
}

static void check(int code, const char *what)
{
    if (code) cannot("%s returned %s", what, name_of(code));
}

static void *grown(void *list, size_t count, size_t size)
{
    // Room for the next power of two.
    if (count & (count - 1)) return list;
    list = realloc(list, (count ? 2 * count : 1) * size);
    if (!list) cannot("out of host memory");
    return list;
}

static unsigned char *zeros(u64 length)
{
    unsigned char *bytes = (unsigned char *)calloc(length ? length : 1, 1);
    if (!bytes) cannot("out of host memory: %llu bytes", (unsigned long long)length);
    return bytes;
}

// The path of a file that the description names, relative to the description.
static char *beside(const char *name)
{
    size_t room = strlen(L.folder) + strlen(name) + 2;
    char *path = (char *)zeros(room);
    snprintf(path, room, "%s%s%s", name[0] == '/' ? "" : L.folder, name[0] == '/' ? "" : "/", name);
    return path;
}

static u64 number(char **text)
{
    char *end = NULL;
    u64 value;
    while (**text == ' ') ++*text;
    value = strtoull(*text, &end, 0);
    if (end == *text) cannot("%s: a number is missing before \"%s\"", description, *text);
    *text = end;
    return value;
}

static char *rest_of(char *text)
{
    while (*text == ' ') ++text;
    return strdup(text);
}

static size_t hex(char *text, unsigned char *bytes, size_t most)
{
    size_t count = 0;
    unsigned byte;
    while (*text == ' ') ++text;
    while (count < most && sscanf(text, "%2x", &byte) == 1 && text[1]) {
        bytes[count++] = (unsigned char)byte;
        text += 2;
    }
    return count;
}

static void read_line(char *line)
{
    char *text = strchr(line, ' ');
    Memory *last = L.memory_count ? &L.memory[L.memory_count - 1] : NULL;
    int i;
    if (text) *text++ = 0;
    else text = line + strlen(line);
#define IS(word) (strcmp(line, word) == 0)
    if (IS("source")) L.source = rest_of(text);
    else if (IS("kernel")) L.kernel = rest_of(text);
    else if (IS("image")) L.image = beside(rest_of(text));
    else if (IS("contents")) L.contents = beside(rest_of(text));
    else if (IS("device")) {
        L.major = (int)number(&text);
        L.minor = (int)number(&text);
        L.device_name = rest_of(text);
    }
    else if (IS("grid")) for (i = 0; i < 3; ++i) L.config.grid[i] = (unsigned)number(&text);
    else if (IS("block")) for (i = 0; i < 3; ++i) L.config.block[i] = (unsigned)number(&text);
    else if (IS("shared")) L.config.shared = (unsigned)number(&text);
    else if (IS("limit") && L.limit_count < 16) {
        L.limits[L.limit_count].id = (int)number(&text);
        L.limits[L.limit_count++].value = number(&text);
    }
    else if (IS("function-attribute") && L.setting_count < 16) {
        L.settings[L.setting_count].id = (int)number(&text);
        while (*text == ' ') ++text;
        L.settings[L.setting_count++].value = (int)strtol(text, NULL, 0);
    }
    else if (IS("attribute")) {
        Attribute *attribute;
        L.config.attributes =
            (Attribute *)grown(L.config.attributes, L.config.count, sizeof(Attribute));
        attribute = &L.config.attributes[L.config.count++];
        memset(attribute, 0, sizeof *attribute);
        attribute->id = (unsigned)number(&text);
        hex(text, attribute->value, sizeof attribute->value);
    }
    else if (IS("parameters")) {
        L.parameter_bytes = number(&text);
        L.parameters = zeros(L.parameter_bytes + 64);
        if (hex(text, L.parameters, L.parameter_bytes) != L.parameter_bytes)
            cannot("%s: the parameters are not whole", description);
    }
    else if (IS("parameter")) {
        L.offsets = (size_t *)grown(L.offsets, L.offset_count, sizeof(size_t));
        L.offsets[L.offset_count++] = number(&text);
    }
    else if (IS("relocate")) {
        Relocation *relocation;
        L.relocations =
            (Relocation *)grown(L.relocations, L.relocation_count, sizeof(Relocation));
        relocation = &L.relocations[L.relocation_count++];
        relocation->offset = number(&text);
        relocation->memory = number(&text);
        relocation->addend = number(&text);
    }
    else if (IS("memory") || IS("host-memory") || IS("variable") || IS("loaded-variable")) {
        Memory *memory;
        int is_variable = strstr(line, "variable") != NULL;
        L.memory = (Memory *)grown(L.memory, L.memory_count, sizeof(Memory));
        memory = &L.memory[L.memory_count++];
        memset(memory, 0, sizeof *memory);
        if (!is_variable) memory->address = number(&text);
        memory->length = number(&text);
        if (is_variable) memory->variable = rest_of(text);
        memory->is_host = IS("host-memory");
        memory->is_as_loaded = IS("loaded-variable");
    }
    else if (last && (IS("before") || IS("after") || IS("after-zero"))) {
        Piece *piece;
        last->pieces = (Piece *)grown(last->pieces, last->count, sizeof(Piece));
        piece = &last->pieces[last->count++];
        piece->at = number(&text);
        piece->length = number(&text);
        piece->is_zero = IS("after-zero");
        piece->is_after = line[0] == 'a';
        piece->file = piece->is_zero ? 0 : number(&text);
        if (piece->at > last->length || piece->length > last->length - piece->at)
            cannot("%s: contents lie outside of their memory", description);
    }
    else if (line[0] && line[0] != '#' && !IS("cutape-launch"))
        cannot("%s: unknown line: %s %s", description, line, text);
}

static void read_description(void)
{
    FILE *file = fopen(description, "r");
    char *line = NULL, *slash;
    size_t room = 0;
    ssize_t length;
    if (!file) cannot("%s cannot be read", description);
    L.folder = strdup(description);
    slash = strrchr(L.folder, '/');
    if (slash) *slash = 0;
    else L.folder = strdup(".");
    while ((length = getline(&line, &room, file)) >= 0) {
        if (length && line[length - 1] == '\n') line[length - 1] = 0;
        read_line(line);
    }
    fclose(file);
    if (!L.kernel || !L.image) cannot("%s names no kernel or no image", description);
}

static void *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long length;
    unsigned char *bytes;
    if (!file) cannot("%s cannot be read", path);
    fseek(file, 0, SEEK_END);
    length = ftell(file);
    rewind(file);
    // PTX ends with a NUL.
    bytes = zeros((u64)length + 64);
    if (fread(bytes, 1, (size_t)length, file) != (size_t)length) cannot("%s cannot be read", path);
    fclose(file);
    return bytes;
}

// Reads what memory holds before and after.
static void read_contents(void)
{
    FILE *file = L.contents ? fopen(L.contents, "rb") : NULL;
    size_t m, p;
    if (L.contents && !file) cannot("%s cannot be read", L.contents);
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        int is_after;
        memory->before = zeros(memory->length);
        memory->expected = zeros(memory->length);
        for (is_after = 0; is_after < 2; ++is_after) {
            unsigned char *bytes = is_after ? memory->expected : memory->before;
            if (is_after) memcpy(bytes, memory->before, memory->length);
            for (p = 0; p < memory->count; ++p) {
                Piece *piece = &memory->pieces[p];
                if (piece->is_after != is_after) continue;
                if (piece->is_zero) memset(bytes + piece->at, 0, piece->length);
                else if (!file || fseek(file, (long)piece->file, SEEK_SET) ||
                         fread(bytes + piece->at, 1, piece->length, file) != piece->length)
                    cannot("%s is too short", L.contents ? L.contents : "the file of contents");
            }
        }
    }
    if (file) fclose(file);
}

static void load_driver(void)
{
    const char *path = driver_path ? driver_path : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) cannot("%s", dlerror());
#define FIND(name, arguments) \
    *(void **)&name = dlsym(library, #name); \
    if (!name) cannot("%s has no %s", path, #name);
    FUNCTIONS(FIND)
    *(void **)&cuLaunchKernelEx = dlsym(library, "cuLaunchKernelEx");
}

// Other addresses of this process's own memory may leave the recorded ones free: first without
// randomisation, then with a new one.
static void restart(u64 address)
{
    enum { ATTEMPTS = 8 };
    const char *text = getenv("CUTAPE_LAUNCH_ATTEMPT");
    int attempt = text ? atoi(text) : 0;
    char next[16];
    if (attempt > ATTEMPTS)
        cannot("address %#llx is not free in this process, in %d attempts",
               (unsigned long long)address, ATTEMPTS);
    snprintf(next, sizeof next, "%d", attempt + 1);
    setenv("CUTAPE_LAUNCH_ATTEMPT", next, 1);
    personality((unsigned long)(personality(0xffffffff) & ~ADDR_NO_RANDOMIZE) |
                (attempt == 0 ? ADDR_NO_RANDOMIZE : 0));
    execv("/proc/self/exe", arguments);
    cannot("it cannot start itself again");
}

typedef struct { u64 start, end; } Range;

static int by_start(const void *a, const void *b)
{
    u64 x = ((const Range *)a)->start, y = ((const Range *)b)->start;
    return x < y ? -1 : x > y;
}

// Joins ranges that overlap or touch; returns how many are left.
static size_t joined(Range *ranges, size_t count)
{
    size_t i, last = 0;
    if (!count) return 0;
    qsort(ranges, count, sizeof *ranges, by_start);
    for (i = 1; i < count; ++i) {
        if (ranges[i].start > ranges[last].end) ranges[++last] = ranges[i];
        else if (ranges[i].end > ranges[last].end) ranges[last].end = ranges[i].end;
    }
    return last + 1;
}

static Range around(const Memory *memory, u64 unit)
{
    Range range;
    range.start = memory->address / unit * unit;
    range.end = (memory->address + memory->length + unit - 1) / unit * unit;
    return range;
}

static int reserve(u64 start, u64 length)
{
    u64 address = 0;
    if (cuMemAddressReserve(&address, length, 0, start, 0)) return 0;
    if (address == start) return 1;
    cuMemAddressFree(address, length);
    return 0;
}

// Page-locked pages at a fixed address.
static int map_host(const Memory *memory)
{
    Range pages = around(memory, 4096);
    u64 seen = 0;
    void *start = (void *)(uintptr_t)pages.start;
    size_t length = (size_t)(pages.end - pages.start);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(start, length, PROT_READ | PROT_WRITE, flags, -1, 0) != start) return 0;
    return cuMemHostRegister_v2(start, length, 3) == 0 &&
           cuMemHostGetDevicePointer_v2(&seen, start, 0) == 0 && seen == pages.start;
}

// Reservations of 32 MiB are honoured where they are free, filled in units of 2 MiB. Host memory
// that is not among device memory may lie where nothing can be reserved: there it is pages of this
// process.
static void place_memory(int device)
{
    size_t m, i, slots = 0, units = 0;
    Range *slot = (Range *)zeros((L.memory_count + 1) * sizeof(Range));
    Range *unit = (Range *)zeros((L.memory_count + 1) * sizeof(Range));
    int pass;
    for (pass = 0; pass < 2; ++pass) {
        for (m = 0; m < L.memory_count; ++m) {
            Memory *memory = &L.memory[m];
            int is_inside = 0;
            Range wanted = around(memory, SLOT);
            if (memory->variable || memory->is_host != pass) continue;
            for (i = 0; i < slots; ++i)
                is_inside |= wanted.start >= slot[i].start && wanted.end <= slot[i].end;
            if (pass && !is_inside) {
                if (!reserve(wanted.start, wanted.end - wanted.start)) {
                    if (!map_host(memory)) restart(memory->address);
                    continue;
                }
                slot[slots++] = wanted;
            }
            else if (!pass) slot[slots++] = wanted;
            unit[units++] = around(memory, GRANULE);
        }
        if (pass) continue;
        slots = joined(slot, slots);
        for (i = 0; i < slots; ++i) {
            u64 at;
            if (reserve(slot[i].start, slot[i].end - slot[i].start)) continue;
            for (at = slot[i].start; at < slot[i].end; at += SLOT)
                if (!reserve(at, SLOT)) restart(at);
        }
    }
    units = joined(unit, units);
    for (i = 0; i < units; ++i) {
        u64 at, end;
        // A mapping lies in one reservation, which may be of one slot.
        for (at = unit[i].start; at < unit[i].end; at = end) {
            MemoryProperties properties;
            MemoryAccess access;
            u64 handle;
            end = (at / SLOT + 1) * SLOT;
            if (end > unit[i].end) end = unit[i].end;
            memset(&properties, 0, sizeof properties);
            properties.type = 1;     // pinned
            properties.location = 1; // a device
            properties.id = device;
            access.location = 1;
            access.id = device;
            access.access = 3; // reading and writing
            check(cuMemCreate(&handle, end - at, &properties, 0), "cuMemCreate");
            check(cuMemMap(at, end - at, 0, handle, 0), "cuMemMap");
            check(cuMemSetAccess(at, end - at, &access, 1), "cuMemSetAccess");
        }
    }
    free(slot);
    free(unit);
}

static void find_variables(void *module)
{
    size_t m, r;
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        size_t size = 0;
        if (!memory->variable) continue;
        check(cuModuleGetGlobal_v2(&memory->address, &size, module, memory->variable),
              "cuModuleGetGlobal");
        if (size != memory->length) cannot("variable %s has another size", memory->variable);
        // What an unchanged variable holds may depend on addresses of this process.
        if (memory->is_as_loaded) {
            unsigned char *now = zeros(memory->length);
            u64 i;
            check(cuMemcpyDtoH_v2(now, memory->address, memory->length), "cuMemcpyDtoH");
            for (i = 0; i < memory->length; ++i)
                if (memory->expected[i] == memory->before[i]) memory->expected[i] = now[i];
            free(memory->before);
            memory->before = now;
        }
    }
    for (r = 0; r < L.relocation_count; ++r) {
        Relocation *relocation = &L.relocations[r];
        u64 address;
        if (relocation->memory >= L.memory_count ||
            relocation->offset + 8 > L.parameter_bytes)
            cannot("%s: a relocation is outside of the parameters", description);
        address = L.memory[relocation->memory].address + relocation->addend;
        memcpy(L.parameters + relocation->offset, &address, 8);
    }
}

// Puts all memory into the state before the launch; if `only_changed`, only what it changes.
static void restore(int only_changed)
{
    size_t m;
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        if (only_changed && !memcmp(memory->before, memory->expected, memory->length)) continue;
        check(cuMemcpyHtoD_v2(memory->address, memory->before, memory->length), "cuMemcpyHtoD");
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static int launch(void *function, void *stream)
{
    void *given[4096], *extra[5], **pointers = given;
    size_t bytes = L.parameter_bytes, i;
    Config *config = &L.config;
    extra[0] = (void *)1; // CU_LAUNCH_PARAM_BUFFER_POINTER
    extra[1] = L.parameters;
    extra[2] = (void *)2; // CU_LAUNCH_PARAM_BUFFER_SIZE
    extra[3] = &bytes;
    extra[4] = NULL;
    for (i = 0; i < L.offset_count && i < 4096; ++i) given[i] = L.parameters + L.offsets[i];
    // Without the places of the parameters they are given in one piece.
    if (!L.offset_count) pointers = NULL;
    config->stream = stream;
    if (!config->count)
        return cuLaunchKernel(function, config->grid[0], config->grid[1], config->grid[2],
                              config->block[0], config->block[1], config->block[2],
                              config->shared, stream, pointers,
                              pointers || !bytes ? NULL : extra);
    if (!cuLaunchKernelEx) cannot("the driver has no cuLaunchKernelEx");
    return cuLaunchKernelEx(config, function, pointers, pointers || !bytes ? NULL : extra);
}

static double value_of(const unsigned char *bytes)
{
    uint32_t word = 0;
    uint16_t half = 0;
    float single;
    double value;
    if (!strcmp(tolerance_type, "f64")) {
        memcpy(&value, bytes, 8);
        return value;
    }
    if (!strcmp(tolerance_type, "f16")) {
        int exponent, fraction;
        memcpy(&half, bytes, 2);
        exponent = half >> 10 & 31;
        fraction = half & 1023;
        value = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        return half & 0x8000 ? -value : value;
    }
    if (!strcmp(tolerance_type, "bf16")) {
        memcpy(&half, bytes, 2);
        word = (uint32_t)half << 16;
    }
    else memcpy(&word, bytes, 4);
    memcpy(&single, &word, 4);
    return single;
}

static u64 element_bytes(void)
{
    return !strcmp(tolerance_type, "f64") ? 8 : !strcmp(tolerance_type, "f32") ? 4 : 2;
}

// How many bytes differ from the recording; `outside` counts the numbers outside the tolerance.
static u64 compare(int run, u64 *outside, int *is_other, int is_told)
{
    size_t m;
    u64 total = 0, ranges = 0, first = 0;
    unsigned char expected = 0, received = 0;
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        unsigned char *now = zeros(memory->length);
        u64 i, here = 0;
        check(cuMemcpyDtoH_v2(now, memory->address, memory->length), "cuMemcpyDtoH");
        if (run == 0) memory->first = now;
        else *is_other |= memcmp(memory->first, now, memory->length) != 0;
        if (memcmp(now, memory->expected, memory->length)) {
            for (i = 0; i < memory->length; ++i) {
                if (now[i] == memory->expected[i]) continue;
                if (!total && !here) {
                    first = memory->address + i;
                    expected = memory->expected[i];
                    received = now[i];
                }
                ++here;
            }
            if (tolerance_type) {
                u64 size = element_bytes();
                for (i = 0; i + size <= memory->length; i += size) {
                    double a, b, scale;
                    if (!memcmp(now + i, memory->expected + i, size)) continue;
                    a = value_of(memory->expected + i);
                    b = value_of(now + i);
                    scale = fmax(1, fmax(fabs(a), fabs(b)));
                    if (isnan(a) && isnan(b)) continue;
                    if (!(a == b || (isfinite(a) && isfinite(b) &&
                                     fabs(a - b) <= tolerance * scale)))
                        ++*outside;
                }
                *outside += memcmp(now + i, memory->expected + i, memory->length - i) != 0;
            }
            ++ranges;
        }
        total += here;
        if (run) free(now);
    }
    if (total && is_told)
        printf("differs  %llu bytes in %llu of %llu ranges; the first at %#llx: "
               "expected %02x, received %02x\n",
               (unsigned long long)total, (unsigned long long)ranges,
               (unsigned long long)L.memory_count, (unsigned long long)first, expected, received);
    return total;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void time_launches(void *function, void *stream)
{
    void *begin, *end;
    float *times = (float *)zeros((u64)(repeat + 1) * sizeof(float));
    int i;
    check(cuEventCreate(&begin, 0), "cuEventCreate");
    check(cuEventCreate(&end, 0), "cuEventCreate");
    for (i = 0; i < repeat; ++i) {
        restore(1);
        check(cuEventRecord(begin, stream), "cuEventRecord");
        check(launch(function, stream), "the launch");
        check(cuEventRecord(end, stream), "cuEventRecord");
        check(cuEventSynchronize(end), "cuEventSynchronize");
        check(cuEventElapsedTime(&times[i], begin, end), "cuEventElapsedTime");
    }
    if (!repeat) return;
    qsort(times, (size_t)repeat, sizeof *times, by_value);
    printf("time     %.2f us (median of %d; %.2f to %.2f)\n", 1e3 * times[repeat / 2], repeat,
           1e3 * times[0], 1e3 * times[repeat - 1]);
}

static int run(void *function, void *stream)
{
    enum { RUNS = 3 };
    u64 differing = 0, outside = 0;
    int attempt, code, is_other = 0;
    for (attempt = 0; attempt < RUNS; ++attempt) {
        restore(0);
        code = launch(function, stream);
        if (!code) code = cuCtxSynchronize();
        if (code) {
            printf("result   failed: the launch returned %s\n", name_of(code));
            return 1;
        }
        differing = compare(attempt, &outside, &is_other, attempt == 0);
        if (!differing && attempt == 0) {
            time_launches(function, stream);
            printf("result   same\n");
            return 0;
        }
        if (tolerance_type && !outside) {
            printf("result   same within %s=%g\n", tolerance_type, tolerance);
            return 0;
        }
        if (is_other) {
            printf("result   nondeterministic: two launches from the same memory differ\n");
            return 1;
        }
    }
    printf("result   different\n");
    return 1;
}

static void read_arguments(int count, char **values)
{
    int i;
    for (i = 1; i < count; ++i) {
        const char *next = i + 1 < count ? values[i + 1] : NULL;
        if (values[i][0] != '-') {
            description = values[i];
            continue;
        }
        if (!next) cannot("%s needs a value, or is unknown", values[i]);
        if (!strcmp(values[i], "--driver")) driver_path = next;
        else if (!strcmp(values[i], "--device")) device_number = atoi(next);
        else if (!strcmp(values[i], "--repeat")) repeat = atoi(next) < 0 ? 0 : atoi(next);
        else if (!strcmp(values[i], "--tolerance")) {
            char *type = strdup(next), *equals = strchr(type, '=');
            if (equals) *equals = 0;
            if (!equals || (strcmp(type, "f16") && strcmp(type, "bf16") && strcmp(type, "f32") &&
                            strcmp(type, "f64")))
                cannot("--tolerance %s: give f16, bf16, f32 or f64, and a number: f32=1e-5", next);
            tolerance_type = type;
            tolerance = atof(equals + 1);
        }
        else cannot("%s is unknown", values[i]);
        ++i;
    }
}

int main(int count, char **values)
{
    int device = 0, major = 0, minor = 0, version = 0, now;
    size_t i;
    u64 bytes = 0;
    char name[256] = "";
    void *context = NULL, *module = NULL, *function = NULL, *stream = NULL, *image;
    arguments = values;
    setvbuf(stdout, NULL, _IOLBF, 0);
    read_arguments(count, values);
    if (!getenv("CUTAPE_LAUNCH_ATTEMPT")) restart(0);
    read_description();
    load_driver();
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, device_number), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    place_memory(device);
    cuDriverGetVersion(&version);
    cuDeviceGetName(name, sizeof name - 1, device);
    cuDeviceGetAttribute(&major, 75, device);
    cuDeviceGetAttribute(&minor, 76, device);
    for (i = 0; i < L.memory_count; ++i) bytes += L.memory[i].length;
    printf("kernel   %s\n", L.kernel);
    if (L.source) printf("from     %s\n", L.source);
    printf("device   %s, compute capability %d.%d, driver %d.%d\n", name, major, minor,
           version / 1000, version / 10 % 100);
    if (L.device_name && (major != L.major || minor != L.minor || strcmp(name, L.device_name)))
        printf("recorded %s, compute capability %d.%d: results may differ\n", L.device_name,
               L.major, L.minor);
    printf("memory   %llu bytes in %llu ranges\n", (unsigned long long)bytes,
           (unsigned long long)L.memory_count);
    read_contents();
    for (i = 0; i < L.limit_count; ++i) {
        size_t value = 0;
        // The stack and the heap of kernels.
        if (cuCtxGetLimit(&value, L.limits[i].id) == 0 && value != L.limits[i].value)
            check(cuCtxSetLimit(L.limits[i].id, L.limits[i].value), "cuCtxSetLimit");
    }
    image = read_file(L.image);
    check(cuModuleLoadData(&module, image), "cuModuleLoadData");
    check(cuModuleGetFunction(&function, module, L.kernel), "cuModuleGetFunction");
    for (i = 0; i < L.setting_count; ++i)
        if (cuFuncGetAttribute(&now, L.settings[i].id, function) == 0 &&
            now != L.settings[i].value)
            check(cuFuncSetAttribute(function, L.settings[i].id, L.settings[i].value),
                  "cuFuncSetAttribute");
    find_variables(module);
    check(cuStreamCreate(&stream, 1), "cuStreamCreate"); // not blocking
    return run(function, stream);
}
