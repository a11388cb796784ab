/* A library in the place of CUPTI, for the tests of `profile`: it has a record for each call that
 * CUTAPE_TESTS_CUPTI names, with times of its own.
 *
 * CUTAPE_TESTS_CUPTI is a list of CALL:KIND:BEGIN:END:VALUE, joined by commas. KIND is kernel, copy,
 * memset or node (a kernel of a graph); BEGIN and END are nanoseconds after the entry of the first
 * call. VALUE is the stream, of copies the bytes, of nodes the node. Other words:
 *     old      the version is too old
 *     refused  cuptiActivityEnable returns 35, as without privileges
 *     lost     three records are lost
 *     own      one kernel more, which no call has enqueued
 *     short    the records of kernels are too short
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PUBLIC __attribute__((visibility("default")))

enum { MEMCPY = 1, MEMSET = 2, DEVICE = 8, KERNEL = 10, OVERHEAD = 17, EXTERNAL = 39, CUSTOM0 = 3 };
enum { KERNEL_BYTES = 216, SHORT_BYTES = 120, COPY_BYTES = 96, MEMSET_BYTES = 88, DEVICE_BYTES = 184 };
enum { SEVERAL = 64, MOST = 1 << 16 };

static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static uint8_t records[MOST];
static size_t sizes[2 * SEVERAL + 8], count, used;
static uint64_t first;
static uint32_t correlation;

static const char *plan(void)
{
    const char *text = getenv("CUTAPE_TESTS_CUPTI");
    return text ? text : "";
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint8_t *record(uint32_t kind, size_t size)
{
    uint8_t *at = records + used;
    memcpy(at, &kind, sizeof kind);
    sizes[count++] = size;
    used += size;
    return at;
}

static void put(uint8_t *record, size_t at, size_t size, uint64_t value)
{
    memcpy(record + at, &value, size);
}

static void work(const char *kind, uint64_t begin, uint64_t end, uint64_t value)
{
    uint8_t *r;
    if (!strcmp(kind, "kernel") || !strcmp(kind, "node")) {
        int is_node = kind[0] == 'n';
        r = record(KERNEL, strstr(plan(), "short") ? SHORT_BYTES : KERNEL_BYTES);
        put(r, 6, 2, 32);
        put(r, 48, 4, is_node ? 40 + value : value);
        for (int i = 0; i < 3; i++) {
            put(r, 52 + 4 * i, 4, i ? 1 : 264);
            put(r, 64 + 4 * i, 4, i ? 1 : 1024);
        }
        put(r, 92, 4, correlation);
        put(r, 104, 8, (uintptr_t)(is_node ? "_Z4nodev" : "_Z6kernelPfi"));
        if (!strstr(plan(), "short"))
            put(r, 144, 8, is_node ? value : 0);
    } else {
        int is_copy = kind[0] == 'c';
        r = record(is_copy ? MEMCPY : MEMSET, is_copy ? COPY_BYTES : MEMSET_BYTES);
        if (is_copy)
            put(r, 4, 3, 1 | 1 << 8 | 3 << 16);
        put(r, 8, 8, value);
        put(r, 40, 4, 7);
        put(r, 44, 4, correlation);
    }
    put(r, 16, 8, first + begin);
    put(r, 24, 8, first + end);
}

PUBLIC uint32_t cuptiGetVersion(uint32_t *version)
{
    *version = strstr(plan(), "old") ? 17 : 130001;
    return 0;
}

PUBLIC uint32_t cuptiGetTimestamp(uint64_t *time)
{
    *time = now();
    return 0;
}

PUBLIC uint32_t cuptiActivityRegisterCallbacks(void *requested, void *completed)
{
    request = (void (*)(uint8_t **, size_t *, size_t *))requested;
    complete = (void (*)(void *, uint32_t, uint8_t *, size_t, size_t))completed;
    return 0;
}

PUBLIC uint32_t cuptiActivityEnable(uint32_t kind)
{
    (void)kind;
    return strstr(plan(), "refused") ? 35 : 0;
}

PUBLIC uint32_t cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id)
{
    if (kind != CUSTOM0)
        return 1;
    if (!first) {
        first = now();
        uint8_t *device = record(DEVICE, DEVICE_BYTES);
        put(device, 8, 8, 4800000000);
        put(device, 44, 4, 132);
        put(device, 52, 4, 64);
        put(device, 56, 4, 32);
        put(device, 60, 4, 233472);
        put(device, 64, 4, 65536);
        put(device, 104, 4, 9);
        put(device, 136, 8, (uintptr_t)"a device of the tests");
        put(record(OVERHEAD, 56), 4, 4, 1 << 16);
        put(records + used - 56, 24, 8, first);
        put(records + used - 56, 32, 8, first + 5000);
    }
    correlation++;
    uint8_t *external = record(EXTERNAL, 24);
    put(external, 4, 4, kind);
    put(external, 8, 8, id);
    put(external, 16, 4, correlation);
    int is_used = 0;
    for (const char *at = plan(); at; at = strchr(at, ',')) {
        unsigned long long call, begin, end, value;
        char name[16];
        at += *at == ',';
        if (sscanf(at, "%llu:%15[a-z]:%llu:%llu:%llu", &call, name, &begin, &end, &value) == 5 &&
            call == id) {
            work(name, begin, end, value);
            is_used = 1;
        }
    }
    if (!is_used) {
        used -= 24;
        count--;
    }
    return 0;
}

PUBLIC uint32_t cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last)
{
    *last = 0;
    return kind != CUSTOM0;
}

PUBLIC uint32_t cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    if (strstr(plan(), "own")) {
        correlation++;
        work("kernel", 1, 2, 99);
    }
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0;
    request(&buffer, &size, &most);
    if (!buffer || size < used)
        return 1;
    memcpy(buffer, records, used);
    complete(NULL, 0, buffer, size, used);
    return 0;
}

PUBLIC uint32_t cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (!*record || buffer + at == *record) {
            size_t next = *record ? at + sizes[i] : 0;
            if (next >= valid)
                return 12;
            *record = buffer + next;
            return 0;
        }
        at += sizes[i];
    }
    return 12;
}

PUBLIC uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = strstr(plan(), "lost") ? 3 : 0;
    return 0;
}
