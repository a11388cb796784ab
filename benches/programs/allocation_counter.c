/* Preloaded: counts the allocations of a process, and prints the number at its end. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static atomic_ulong allocations;

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    allocations++;
    *place = __libc_memalign(alignment, size);
    return *place == NULL ? 12 : 0;
}

__attribute__((destructor)) static void print_count(void)
{
    char line[64];
    int length = snprintf(line, sizeof line, "allocations %lu\n", allocations);
    if (write(STDOUT_FILENO, line, length) != length)
        _exit(1);
}
