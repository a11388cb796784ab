/* Processes of one program, forked before the first call of the driver: a barrier for all, and
 * sockets over which each sends descriptors to the next one. A program may define RANKS. */
#ifndef CUTAPE_RANKS_H
#define CUTAPE_RANKS_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "program.h"

#ifndef RANKS
#define RANKS 4
#endif
enum { BLOCK = 2 << 20 };

static pthread_barrier_t *all_ranks;
/* Over these each rank sends descriptors to the next one. */
static int sockets[RANKS][2];

/* As `begin`, on another device; numbers beyond the last one start again at the first. */
static inline void begin_on(int number)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    int devices = 0;
    CHECK(cuDeviceGetCount(&devices));
    CHECK(cuDeviceGet(&device, number % devices));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

static inline void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    return memory;
}

static inline void meet(void)
{
    int result = pthread_barrier_wait(all_ranks);
    EXPECT(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

static inline void send_descriptor(int socket, int descriptor)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    EXPECT(sendmsg(socket, &message, 0) == 1);
    close(descriptor);
}

static inline int receive_descriptor(int socket)
{
    int descriptor = -1;
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    EXPECT(recvmsg(socket, &message, 0) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    EXPECT(head != NULL && head->cmsg_type == SCM_RIGHTS);
    memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
    return descriptor;
}

/* Runs `run` in every rank. */
static inline void fork_ranks(int (*run)(int rank), pid_t children[RANKS])
{
    all_ranks = map_shared(sizeof *all_ranks);
    pthread_barrierattr_t shared;
    EXPECT(pthread_barrierattr_init(&shared) == 0);
    EXPECT(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
    EXPECT(pthread_barrier_init(all_ranks, &shared, RANKS) == 0);
    for (int rank = 0; rank < RANKS; rank++)
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[rank]) == 0);
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        EXPECT(children[rank] >= 0);
        if (children[rank] == 0) {
            char text[16];
            snprintf(text, sizeof text, "%d", rank);
            EXPECT(setenv("RANK", text, 1) == 0);
            snprintf(text, sizeof text, "%d", RANKS);
            EXPECT(setenv("WORLD_SIZE", text, 1) == 0);
            exit(run(rank));
        }
    }
}

/* Waits until all ranks have ended well. */
static inline void join_ranks(const pid_t children[RANKS])
{
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        EXPECT(waitpid(children[rank], &status, 0) == children[rank] && status == 0);
    }
}

static inline CUdeviceptr map_block(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr address = 0;
    CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CHECK(cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

static inline void unmap_block(CUdeviceptr address, size_t bytes,
                               CUmemGenericAllocationHandle handle)
{
    CHECK(cuMemUnmap(address, bytes));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemAddressFree(address, bytes));
}

#endif
