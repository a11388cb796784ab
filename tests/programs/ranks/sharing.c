/* Four ranks that share memory in every way that the driver has: each exports memory, an event,
 * physical memory, and a pool with memory of it, and imports those of the rank before it. In each
 * step a rank writes into what it exports, waits until all have, and prints what it reads from the
 * rank before it, with copies and with a kernel. They also register memory that all of them have
 * mapped. Only rank 2 asks for the priorities of streams, before it exports anything.
 *
 * The argument is the number of steps. With a second one the ranks use all devices in turn, else
 * the first. The ranks are forked before the first call of the driver. */
#include "ranks.h"

enum { WORDS = 1024 };

/* What all ranks have mapped. */
struct board {
    CUipcMemHandle memory[RANKS];
    CUipcEventHandle event[RANKS];
    CUmemPoolPtrExportData pointer[RANKS];
};

static struct board *board;
/* A page of each rank, which it registers. */
static unsigned *pages;
static int steps, spread;

static void fill(CUdeviceptr memory, unsigned value)
{
    unsigned words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = value + i;
    CHECK(cuMemcpyHtoD(memory, words, sizeof words));
}

static unsigned read_back(CUdeviceptr memory)
{
    unsigned words[WORDS];
    CHECK(cuMemcpyDtoH(words, memory, sizeof words));
    for (int i = 0; i < WORDS; i++)
        EXPECT(words[i] == words[0] + i);
    return words[0];
}

/* sum[i] = a[i] + b[i] + c[i] of a block of 1024 threads. */
static const char *const kernels =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry add(.param .u64 sum, .param .u64 a, .param .u64 b, .param .u64 c) {\n"
    ".reg .b64 %p<9>; .reg .b32 %v<6>;\n"
    "mov.u32 %v1, %tid.x; mul.wide.u32 %p5, %v1, 4;\n"
    "ld.param.u64 %p1, [sum]; ld.param.u64 %p2, [a]; ld.param.u64 %p3, [b]; ld.param.u64 %p4, [c];\n"
    "add.s64 %p1, %p1, %p5; add.s64 %p2, %p2, %p5; add.s64 %p3, %p3, %p5; add.s64 %p4, %p4, %p5;\n"
    "ld.global.u32 %v2, [%p2]; ld.global.u32 %v3, [%p3]; ld.global.u32 %v4, [%p4];\n"
    "add.u32 %v5, %v2, %v3; add.u32 %v5, %v5, %v4; add.u32 %v5, %v5, 0;\n"
    "st.global.u32 [%p1], %v5; ret; }\n";

static int run(int rank)
{
    int before = (rank + RANKS - 1) % RANKS;
    int out = sockets[rank][0], in = sockets[before][1];
    begin_on(spread ? rank : 0);
    CUmodule module = load_ptx(kernels);
    CUfunction add = function_of(module, "add");
    CUdeviceptr sum = 0;
    CHECK(cuMemAlloc(&sum, WORDS * sizeof(unsigned)));
    CHECK(cuMemsetD32(sum, 0, WORDS));
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    if (rank == 2) {
        int least = 0, greatest = 0;
        CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    }

    /* What this rank exports. */
    CUdeviceptr memory = 0, from_pool = 0;
    CHECK(cuMemAlloc(&memory, WORDS * sizeof(unsigned)));
    CHECK(cuIpcGetMemHandle(&board->memory[rank], memory));
    CUevent event = NULL;
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuIpcGetEventHandle(&board->event[rank], event));
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle physical = 0;
    int descriptor = -1;
    CHECK(cuMemCreate(&physical, BLOCK, &properties, 0));
    CHECK(cuMemExportToShareableHandle(&descriptor, physical,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(out, descriptor);
    CUdeviceptr mapped = map_block(physical, BLOCK);
    CUmemPoolProps pool_properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool pool = NULL;
    CHECK(cuMemPoolCreate(&pool, &pool_properties));
    CHECK(cuMemPoolExportToShareableHandle(&descriptor, pool,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(out, descriptor);
    CHECK(cuMemAllocFromPoolAsync(&from_pool, WORDS * sizeof(unsigned), pool, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolExportPointer(&board->pointer[rank], from_pool));
    CHECK(cuMemHostRegister(pages + 1024 * rank, 4096, CU_MEMHOSTREGISTER_PORTABLE));
    meet();

    /* What it imports from the rank before it. */
    CUdeviceptr their_memory = 0, their_from_pool = 0;
    CHECK(cuIpcOpenMemHandle(&their_memory, board->memory[before],
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CUevent their_event = NULL;
    CHECK(cuIpcOpenEventHandle(&their_event, board->event[before]));
    CUmemGenericAllocationHandle their_physical = 0;
    descriptor = receive_descriptor(in);
    CHECK(cuMemImportFromShareableHandle(&their_physical, (void *)(uintptr_t)descriptor,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    CUdeviceptr their_mapped = map_block(their_physical, BLOCK);
    CUmemoryPool their_pool = NULL;
    descriptor = receive_descriptor(in);
    CHECK(cuMemPoolImportFromShareableHandle(&their_pool, (void *)(uintptr_t)descriptor,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(descriptor);
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemPoolSetAccess(their_pool, &access, 1));
    CHECK(cuMemPoolImportPointer(&their_from_pool, their_pool, &board->pointer[before]));

    for (int step = 0; step < steps; step++) {
        unsigned value = 1000000 * (step + 1) + 10000 * rank;
        fill(memory, value);
        fill(mapped, value + 2000);
        fill(from_pool, value + 4000);
        /* A copy from pageable memory may return before the device has all of it. */
        CHECK(cuCtxSynchronize());
        CHECK(cuEventRecord(event, stream));
        meet();
        CHECK(cuStreamWaitEvent(stream, their_event, 0));
        CHECK(cuEventSynchronize(their_event));
        unsigned read[] = {read_back(their_memory), read_back(their_mapped),
                           read_back(their_from_pool)};
        printf("rank %d step %d: %u %u %u\n", rank, step, read[0], read[1], read[2]);
        void *parameters[] = {&sum, &their_memory, &their_mapped, &their_from_pool};
        launch(add, 1, WORDS, stream, parameters);
        CHECK(cuStreamSynchronize(stream));
        unsigned sums[WORDS];
        CHECK(cuMemcpyDtoH(sums, sum, sizeof sums));
        unsigned expected = read[0] + read[1] + read[2] + 3 * 7;
        if (driver_runs_kernels() && sums[7] != expected)
            fprintf(stderr, "rank %d step %d: %u %u %u, their sum %u\n", rank, step, read[0],
                    read[1], read[2], sums[7] - 3 * 7);
        EXPECT_KERNEL(sums[7] == expected);
        /* Nobody writes until all have read. */
        meet();
    }

    CHECK(cuMemFreeAsync(their_from_pool, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolDestroy(their_pool));
    unmap_block(their_mapped, BLOCK, their_physical);
    CHECK(cuEventDestroy(their_event));
    CHECK(cuIpcCloseMemHandle(their_memory));
    meet();
    CHECK(cuMemHostUnregister(pages + 1024 * rank));
    CHECK(cuMemFreeAsync(from_pool, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolDestroy(pool));
    unmap_block(mapped, BLOCK, physical);
    CHECK(cuEventDestroy(event));
    CHECK(cuMemFree(memory));
    CHECK(cuMemFree(sum));
    CHECK(cuModuleUnload(module));
    CHECK(cuStreamDestroy(stream));
    end();
    return 0;
}

int main(int count, char **arguments)
{
    EXPECT(count == 2 || count == 3);
    steps = atoi(arguments[1]);
    spread = count == 3;
    board = map_shared(sizeof *board);
    pages = map_shared(4096 * RANKS);
    pid_t children[RANKS];
    fork_ranks(run, children);
    join_ranks(children);
    return 0;
}
