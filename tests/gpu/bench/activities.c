/* Writes what CUPTI measures of an unmodified program: one line of JSON for each kernel, copy and
 * memset. Loaded by the driver itself:
 *     CUDA_INJECTION64_PATH=/…/activities.so ACTIVITIES_CUPTI=/…/libcupti.so ACTIVITIES_OUT=FILE program
 * The offsets are those of CUPTI 12 and 13; measure/src/gpu/record.rs has the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMCPY = 1, MEMSET = 2, KERNEL = 10, OVERHEAD = 17, EXTERNAL = 39, PEER_COPY = 22, GRAPH = 51 };
enum { BUFFER = 8 << 20, ALIGN = 8, FORCED = 1 };

static int (*next_record)(uint8_t *, size_t, uint8_t **);
static int (*flush_all)(uint32_t);
static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t u64(const uint8_t *at) { uint64_t v; memcpy(&v, at, 8); return v; }
static uint32_t u32(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return v; }

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(ALIGN, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *most = 0;
}

static void line(const uint8_t *r, size_t size)
{
    switch (u32(r)) {
    case KERNEL:
        fprintf(out, "{\"kind\":\"kernel\",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"stream\":%u,"
                "\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"correlation\":%u,\"node\":%" PRIu64
                ",\"size\":%zu,\"name\":\"%s\"}\n",
                u64(r + 16), u64(r + 24), u32(r + 48), u32(r + 52), u32(r + 56), u32(r + 60),
                u32(r + 64), u32(r + 68), u32(r + 72), u32(r + 92), u64(r + 144), size,
                (const char *)(uintptr_t)u64(r + 104));
        break;
    case MEMCPY:
        fprintf(out, "{\"kind\":\"copy\",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"stream\":%u,"
                "\"bytes\":%" PRIu64 ",\"copy\":%u,\"from\":%u,\"to\":%u,\"correlation\":%u,\"size\":%zu}\n",
                u64(r + 16), u64(r + 24), u32(r + 40), u64(r + 8), r[4], r[5], r[6], u32(r + 44), size);
        break;
    case MEMSET:
        fprintf(out, "{\"kind\":\"memset\",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"stream\":%u,"
                "\"bytes\":%" PRIu64 ",\"correlation\":%u,\"size\":%zu}\n",
                u64(r + 16), u64(r + 24), u32(r + 40), u64(r + 8), u32(r + 44), size);
        break;
    default:
        fprintf(out, "{\"kind\":\"other\",\"of\":%u,\"size\":%zu}\n", u32(r), size);
    }
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    uint8_t *record = NULL, *before = NULL;
    pthread_mutex_lock(&lock);
    while (next_record(buffer, valid, &record) == 0) {
        if (before)
            line(before, (size_t)(record - before));
        before = record;
    }
    if (before)
        line(before, (size_t)(buffer + valid - before));
    fflush(out);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static void at_end(void)
{
    flush_all(FORCED);
    fflush(out);
}

int InitializeInjection(void)
{
    const char *path = getenv("ACTIVITIES_CUPTI"), *file = getenv("ACTIVITIES_OUT");
    const char *kinds = getenv("ACTIVITIES_KINDS");
    void *cupti = dlopen(path ? path : "libcupti.so", RTLD_NOW | RTLD_GLOBAL);
    if (!cupti || !file) {
        fprintf(stderr, "activities: %s\n", cupti ? "ACTIVITIES_OUT is not set" : dlerror());
        return 0;
    }
    int (*enable)(uint32_t) = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityEnable");
    int (*callbacks)(void *, void *) = (int (*)(void *, void *))dlsym(cupti, "cuptiActivityRegisterCallbacks");
    next_record = (int (*)(uint8_t *, size_t, uint8_t **))dlsym(cupti, "cuptiActivityGetNextRecord");
    flush_all = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", file, (int)getpid());
    out = fopen(name, "w");
    if (!enable || !callbacks || !next_record || !flush_all || !out)
        return 0;
    callbacks((void *)request, (void *)complete);
    for (const char *kind = kinds ? kinds : "10,1,2,22"; *kind; kind += *kind == ',') {
        int code = enable((uint32_t)strtoul(kind, (char **)&kind, 10));
        if (code)
            fprintf(stderr, "activities: cuptiActivityEnable: %d\n", code);
    }
    atexit(at_end);
    return 1;
}
