// A pool of pinned slots is freed through the head of its list of free slots, which is no longer
// the first slot once the pool has been used; the control keeps the address of the chunk.
// https://github.com/charmplusplus/charm/issues/3639
// expect: memory-free-wrong-kind
#include "program.h"

enum { SLOTS = 8, SLOT = 512 };

struct slot {
    struct slot *next;
};

struct pool {
    void *chunk;
    struct slot *head;
};

static void create(struct pool *pool)
{
    CHECK(cuMemAllocHost(&pool->chunk, SLOTS * SLOT));
    pool->head = NULL;
    for (int i = SLOTS; i-- > 0;) {
        struct slot *slot = (struct slot *)((char *)pool->chunk + i * SLOT);
        slot->next = pool->head;
        pool->head = slot;
    }
}

static void *take(struct pool *pool)
{
    struct slot *slot = pool->head;
    pool->head = slot->next;
    return slot;
}

static void put(struct pool *pool, void *memory)
{
    struct slot *slot = memory;
    slot->next = pool->head;
    pool->head = slot;
}

int main(void)
{
    begin();
    struct pool pool;
    create(&pool);
    void *first = take(&pool), *second = take(&pool);
    put(&pool, first);
    put(&pool, second);
#ifdef VIOLATE
    MISUSE(cuMemFreeHost(pool.head));
#else
    CHECK(cuMemFreeHost(pool.chunk));
#endif
    end();
    return success();
}
