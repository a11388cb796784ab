/* Two ranks that share page-locked host memory, as NCCL's transport through shared memory does: a
 * file in /dev/shm that both map and register. In each step rank 1 copies data into it and writes a
 * flag, for which a stream of rank 0 waits before it copies the data out of it.
 *
 * The first argument is the number of steps, the second says who writes the flag: `device` (a
 * stream of rank 1), `cpu` (a thread of rank 1), or `own-cpu` (a thread of rank 0, when rank 1 has
 * told it, as a proxy does that has received data over the network). With a third one, the ranks
 * use different devices. The ranks are forked before the first call of the driver. */
#include <fcntl.h>

#define RANKS 2
#include "ranks.h"

enum { WORDS = 1024, DATA = 128 << 10, SEGMENT = 256 << 10 };

/* What all ranks have mapped, and do not register. */
struct board {
    /* How many steps have their data. */
    volatile unsigned steps;
};
static struct board *board;
static int segment_file;

/* The arguments. */
static unsigned steps;
static const char *writer;
static int spread;

/* The segment, and the number that its flag gets. */
static unsigned char *segment;
static volatile unsigned wanted;

static void *write_flags(void *unused)
{
    unsigned written = 0;
    (void)unused;
    while (wanted != ~0u)
        if (written != wanted && board->steps >= wanted) {
            /* Others are in their waits by now. */
            usleep(20000);
            written = wanted;
            *(volatile unsigned *)segment = written;
        } else {
            usleep(100);
        }
    return NULL;
}

static int run(int rank)
{
    begin();
    int devices = 0;
    CHECK(cuDeviceGetCount(&devices));
    if (spread && rank % devices != 0) {
        end();
        CHECK(cuDeviceGet(&device, rank % devices));
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
    }
    segment = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, segment_file, 0);
    EXPECT(segment != MAP_FAILED);
    CHECK(cuMemHostRegister(segment, SEGMENT, CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr shared = 0, memory = 0;
    CHECK(cuMemHostGetDevicePointer(&shared, segment, 0));
    CHECK(cuMemAlloc(&memory, WORDS * sizeof(unsigned)));
    CHECK(cuMemsetD32(memory, 0, WORDS));
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    int has_thread = strcmp(writer, rank == 0 ? "own-cpu" : "cpu") == 0;
    pthread_t thread;
    if (has_thread)
        EXPECT(pthread_create(&thread, NULL, write_flags, NULL) == 0);
    meet();
    unsigned words[WORDS];
    for (unsigned step = 1; step <= steps; step++) {
        if (rank == 0) {
            wanted = step;
            CHECK(cuStreamWaitValue32(stream, shared, step, CU_STREAM_WAIT_VALUE_GEQ));
            CHECK(cuStreamSynchronize(stream));
            CHECK(cuMemcpyAsync(memory, shared + DATA, sizeof words, stream));
            CHECK(cuStreamSynchronize(stream));
            CHECK(cuMemcpyDtoH(words, memory, sizeof words));
            for (int i = 0; i < WORDS; i++)
                EXPECT(words[i] == 1000 * step + i);
            printf("step %u: %u\n", step, words[0]);
        } else {
            int least = 0, greatest = 0;
            CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
            for (int i = 0; i < WORDS; i++)
                words[i] = 1000 * step + i;
            /* The other rank is in its wait by then. */
            usleep(5000);
            CHECK(cuMemcpyHtoD(memory, words, sizeof words));
            CHECK(cuMemcpyAsync(shared + DATA, memory, sizeof words, stream));
            if (strcmp(writer, "device") == 0)
                CHECK(cuStreamWriteValue32(stream, shared, step, 0));
            CHECK(cuStreamSynchronize(stream));
            board->steps = step;
            wanted = step;
        }
        /* Nobody writes until the other has read. */
        meet();
    }
    wanted = ~0u;
    if (has_thread)
        EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuMemHostUnregister(segment));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return 0;
}

int main(int count, char **arguments)
{
    EXPECT(count == 3 || count == 4);
    steps = atoi(arguments[1]);
    writer = arguments[2];
    spread = count == 4;
    board = map_shared(sizeof *board);
    char name[64];
    snprintf(name, sizeof name, "/dev/shm/host_flags.%d", (int)getpid());
    segment_file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT(segment_file >= 0 && ftruncate(segment_file, SEGMENT) == 0);
    EXPECT(unlink(name) == 0);
    pid_t children[RANKS];
    fork_ranks(run, children);
    join_ranks(children);
    return 0;
}
