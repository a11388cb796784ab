// A file mapping is registered and unmapped without being unregistered; the next one gets the same
// address, and its registration fails. The control unregisters the first.
// https://github.com/MoonshotAI/checkpoint-engine/issues/67
// expect: memory-host-register-overlap
#include "program.h"

#include <sys/mman.h>

enum { BYTES = 1 << 16 };

static void *checkpoint(void *at)
{
    void *memory = mmap(at, BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    EXPECT(memory != MAP_FAILED);
    MISUSE(cuMemHostRegister(memory, BYTES, 0));
    return memory;
}

static void forget(void *memory)
{
#ifndef VIOLATE
    CHECK(cuMemHostUnregister(memory));
#endif
    EXPECT(munmap(memory, BYTES) == 0);
}

int main(void)
{
    begin();
    void *first = checkpoint(NULL);
    forget(first);
    void *second = checkpoint(first);
    CHECK(cuMemHostUnregister(second));
    EXPECT(munmap(second, BYTES) == 0);
    end();
    return success();
}
