/* Counts the calls that have returned, in a file that outlives the process: `counted FILE THREADS
 * CALLS`. Each thread has 64 bytes of it: its number in the operating system, and its count. Without
 * a number of calls, the threads go on for ever. */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { BYTES = 8192, MOST_THREADS = 64 };

struct count {
    uint64_t thread;
    volatile uint64_t returned;
    uint64_t unused[6];
};

static struct count *counts;
static uint64_t most;

static void *call_and_count(void *data)
{
    struct count *own = data;
    char bytes[BYTES] = {0};
    CUdeviceptr memory = 0;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&memory, BYTES));
    own->thread = (uint64_t)syscall(SYS_gettid);
    while (own->returned < most) {
        /* The bytes of each copy are new, so that they are written. */
        memcpy(bytes, (void *)&own->returned, sizeof own->returned);
        if (own->returned % 16 == 15)
            CHECK(cuMemcpyHtoD(memory, bytes, BYTES));
        else
            CHECK(cuCtxSynchronize());
        own->returned++;
    }
    CHECK(cuMemFree(memory));
    return NULL;
}

int main(int argc, char **argv)
{
    EXPECT(argc > 2);
    unsigned threads = (unsigned)strtoul(argv[2], NULL, 10);
    most = argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX;
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    EXPECT(file >= 0 && threads <= MOST_THREADS);
    EXPECT(ftruncate(file, sizeof *counts * MOST_THREADS) == 0);
    counts = mmap(NULL, sizeof *counts * MOST_THREADS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(counts != MAP_FAILED);
    begin();
    pthread_t others[MOST_THREADS];
    for (unsigned i = 1; i < threads; i++)
        EXPECT(pthread_create(&others[i], NULL, call_and_count, &counts[i]) == 0);
    call_and_count(&counts[0]);
    for (unsigned i = 1; i < threads; i++)
        EXPECT(pthread_join(others[i], NULL) == 0);
    end();
    return success();
}
