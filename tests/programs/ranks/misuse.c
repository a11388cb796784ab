/* What ranks do wrong with each other's objects, and the nearest correct thing. The arguments are
 * the name of a case, and "violate" or "correct". Ranks 0 and 1 violate, ranks 2 and 3 do the
 * correct thing beside them; even ranks export, and the next ones import. */
#include "ranks.h"

enum { BYTES = 4096 };

/* What a pair of ranks has mapped. */
struct board {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    CUmemPoolPtrExportData pointer;
};

static struct board *boards;
static int is_violation;

/* One end of a pair: the exporter has number 0. */
struct side {
    int number;
    int violates;
    struct board *board;
    int out, in;
    CUstream stream;
};

static void read_words(CUdeviceptr memory)
{
    unsigned words[BYTES / 4];
    MISUSE(cuMemcpyDtoH(words, memory, sizeof words));
}

/* Passes memory to a kernel: as its pointer, or as a number in a struct beside the pointer. */
static void launch_with(CUdeviceptr memory, int as_pointer)
{
    CUmodule module = load_ptx(as_pointer ? PTX_MARK : PTX_BY_STRUCT);
    CUdeviceptr own = 0;
    CHECK(cuMemAlloc(&own, BYTES));
    uint64_t members[4] = {own, 0, memory, 0};
    void *parameters[] = {as_pointer ? (void *)&memory : members};
    MISUSE(cuLaunchKernel(function_of(module, as_pointer ? "mark" : "by_struct"), 1, 1, 1, 1, 1, 1,
                          0, NULL, parameters, NULL));
    MISUSE(cuCtxSynchronize());
    MISUSE(cuMemFree(own));
    MISUSE(cuModuleUnload(module));
}

enum use { NOT_USED, COPIED, LAUNCHED, IN_STRUCT };

/* The importer closes memory, or uses it, only after the exporter has freed it. */
static void memory(struct side *side, enum use use)
{
    CUdeviceptr address = 0;
    if (side->number == 0) {
        CHECK(cuMemAlloc(&address, BYTES));
        CHECK(cuMemsetD8(address, 7, BYTES));
        CHECK(cuIpcGetMemHandle(&side->board->memory, address));
    }
    meet();
    if (side->number == 1) {
        CHECK(cuIpcOpenMemHandle(&address, side->board->memory,
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        read_words(address);
        if (!side->violates)
            CHECK(cuIpcCloseMemHandle(address));
    }
    meet();
    if (side->number == 0)
        CHECK(cuMemFree(address));
    meet();
    if (side->number == 1 && side->violates) {
        if (use == COPIED)
            read_words(address);
        else if (use != NOT_USED)
            launch_with(address, use == LAUNCHED);
        MISUSE(cuIpcCloseMemHandle(address));
    }
}

static void memory_closed_late(struct side *side)
{
    memory(side, NOT_USED);
}

static void memory_used_late(struct side *side)
{
    memory(side, COPIED);
}

static void memory_launched_late(struct side *side)
{
    memory(side, LAUNCHED);
}

static void memory_in_struct_late(struct side *side)
{
    memory(side, IN_STRUCT);
}

static CUmemoryPool create_pool(void)
{
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool pool = NULL;
    CHECK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void send_pool(struct side *side, CUmemoryPool pool)
{
    int descriptor = -1;
    CHECK(cuMemPoolExportToShareableHandle(&descriptor, pool,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(side->out, descriptor);
}

static CUresult import_pool(CUmemoryPool *pool, int descriptor)
{
    CUresult result = cuMemPoolImportFromShareableHandle(
        pool, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    close(descriptor);
    return result;
}

/* The importer frees memory of a pool only after the exporter has. */
static void pool_memory_freed_late(struct side *side)
{
    CUdeviceptr address = 0;
    CUmemoryPool pool = NULL;
    if (side->number == 0) {
        pool = create_pool();
        send_pool(side, pool);
        CHECK(cuMemAllocFromPoolAsync(&address, BYTES, pool, side->stream));
        CHECK(cuStreamSynchronize(side->stream));
        CHECK(cuMemPoolExportPointer(&side->board->pointer, address));
    }
    meet();
    if (side->number == 1) {
        CHECK(import_pool(&pool, receive_descriptor(side->in)));
        CHECK(cuMemPoolImportPointer(&address, pool, &side->board->pointer));
        if (!side->violates)
            CHECK(cuMemFreeAsync(address, side->stream));
        CHECK(cuStreamSynchronize(side->stream));
    }
    meet();
    if (side->number == 0) {
        CHECK(cuMemFreeAsync(address, side->stream));
        CHECK(cuStreamSynchronize(side->stream));
    }
    meet();
    if (side->number == 1 && side->violates) {
        MISUSE(cuMemFreeAsync(address, side->stream));
        MISUSE(cuStreamSynchronize(side->stream));
    }
    CHECK(cuMemPoolDestroy(pool));
}

/* The importer waits for an event that the exporter has destroyed. */
static void event_used_late(struct side *side)
{
    CUevent event = NULL;
    if (side->number == 0) {
        CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        CHECK(cuIpcGetEventHandle(&side->board->event, event));
        CHECK(cuEventRecord(event, side->stream));
        CHECK(cuStreamSynchronize(side->stream));
    }
    meet();
    if (side->number == 1) {
        CHECK(cuIpcOpenEventHandle(&event, side->board->event));
        CHECK(cuStreamWaitEvent(side->stream, event, 0));
        CHECK(cuStreamSynchronize(side->stream));
    }
    meet();
    if (side->number == 0)
        CHECK(cuEventDestroy(event));
    meet();
    if (side->number == 1) {
        if (side->violates) {
            MISUSE(cuStreamWaitEvent(side->stream, event, 0));
            MISUSE(cuStreamSynchronize(side->stream));
        }
        /* The opened event is destroyed in any case. */
        CHECK(cuEventDestroy(event));
    }
}

/* The importer opens what the exporter has freed. */
static void memory_opened_late(struct side *side)
{
    CUdeviceptr address = 0;
    if (side->number == 0) {
        CHECK(cuMemAlloc(&address, BYTES));
        CHECK(cuIpcGetMemHandle(&side->board->memory, address));
        if (side->violates)
            CHECK(cuMemFree(address));
    }
    meet();
    if (side->number == 1) {
        CUresult result = cuIpcOpenMemHandle(&address, side->board->memory,
                                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (result == CUDA_SUCCESS)
            MISUSE(cuIpcCloseMemHandle(address));
        EXPECT(side->violates || result == CUDA_SUCCESS);
    }
    meet();
    if (side->number == 0 && !side->violates)
        CHECK(cuMemFree(address));
}

/* The importer opens an event that the exporter has destroyed. */
static void event_opened_late(struct side *side)
{
    CUevent event = NULL;
    if (side->number == 0) {
        CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        CHECK(cuIpcGetEventHandle(&side->board->event, event));
        if (side->violates)
            CHECK(cuEventDestroy(event));
    }
    meet();
    if (side->number == 1) {
        CUresult result = cuIpcOpenEventHandle(&event, side->board->event);
        if (result == CUDA_SUCCESS)
            MISUSE(cuEventDestroy(event));
        EXPECT(side->violates || result == CUDA_SUCCESS);
    }
    meet();
    if (side->number == 0 && !side->violates)
        CHECK(cuEventDestroy(event));
}

static CUmemGenericAllocationHandle create_block(size_t bytes)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

static void send_block(struct side *side, CUmemGenericAllocationHandle handle)
{
    int descriptor = -1;
    CHECK(cuMemExportToShareableHandle(&descriptor, handle,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(side->out, descriptor);
}

static CUresult import_block(CUmemGenericAllocationHandle *handle, int descriptor)
{
    CUresult result = cuMemImportFromShareableHandle(
        handle, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    return result;
}

/* Physical memory may be released while others have it: both ways are correct. */
static void block_released_early(struct side *side)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    if (side->number == 0) {
        handle = create_block(BLOCK);
        send_block(side, handle);
        address = map_block(handle, BLOCK);
    }
    meet();
    if (side->number == 1) {
        CHECK(import_block(&handle, receive_descriptor(side->in)));
        address = map_block(handle, BLOCK);
    }
    meet();
    if (side->number == 0 || !side->violates)
        unmap_block(address, BLOCK, handle);
    meet();
    if (side->number == 1 && side->violates) {
        CHECK(cuMemsetD8(address, 1, BLOCK));
        unmap_block(address, BLOCK, handle);
    }
}

/* The exporter sends an allocation and a pool; the importer takes them in the other order. */
static void kinds_exchanged(struct side *side)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemoryPool pool = NULL;
    if (side->number == 0) {
        handle = create_block(BLOCK);
        pool = create_pool();
        send_block(side, handle);
        send_pool(side, pool);
        meet();
        CHECK(cuMemRelease(handle));
        CHECK(cuMemPoolDestroy(pool));
        return;
    }
    int first = receive_descriptor(side->in), second = receive_descriptor(side->in);
    CUresult block = import_block(&handle, side->violates ? second : first);
    CUresult other = import_pool(&pool, side->violates ? first : second);
    EXPECT(side->violates || (block == CUDA_SUCCESS && other == CUDA_SUCCESS));
    if (block == CUDA_SUCCESS)
        CHECK(cuMemRelease(handle));
    if (other == CUDA_SUCCESS)
        CHECK(cuMemPoolDestroy(pool));
    meet();
}

/* The exporter sends two allocations; the importer takes the smaller one for the larger one. */
static void sizes_exchanged(struct side *side)
{
    CUmemGenericAllocationHandle handles[2] = {0};
    size_t sizes[2] = {BLOCK, 2 * BLOCK};
    if (side->number == 0) {
        for (int i = 0; i < 2; i++) {
            handles[i] = create_block(sizes[i]);
            send_block(side, handles[i]);
        }
        meet();
        for (int i = 0; i < 2; i++)
            CHECK(cuMemRelease(handles[i]));
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK(import_block(&handles[i], receive_descriptor(side->in)));
    CUdeviceptr address = 0;
    CHECK(cuMemAddressReserve(&address, 2 * BLOCK, 0, 0, 0));
    CUresult result = cuMemMap(address, 2 * BLOCK, 0, handles[side->violates ? 0 : 1], 0);
    if (result == CUDA_SUCCESS)
        CHECK(cuMemUnmap(address, 2 * BLOCK));
    EXPECT(side->violates || result == CUDA_SUCCESS);
    CHECK(cuMemAddressFree(address, 2 * BLOCK));
    for (int i = 0; i < 2; i++)
        CHECK(cuMemRelease(handles[i]));
    meet();
}

/* The exporter sends two pools; the importer takes memory of the first one through the second. */
static void pools_exchanged(struct side *side)
{
    CUmemoryPool pools[2] = {NULL};
    CUdeviceptr address = 0;
    if (side->number == 0) {
        for (int i = 0; i < 2; i++) {
            pools[i] = create_pool();
            send_pool(side, pools[i]);
        }
        CHECK(cuMemAllocFromPoolAsync(&address, BYTES, pools[0], side->stream));
        CHECK(cuStreamSynchronize(side->stream));
        CHECK(cuMemPoolExportPointer(&side->board->pointer, address));
    }
    meet();
    if (side->number == 1) {
        for (int i = 0; i < 2; i++)
            CHECK(import_pool(&pools[i], receive_descriptor(side->in)));
        CUmemoryPool pool = pools[side->violates ? 1 : 0];
        CUresult result = cuMemPoolImportPointer(&address, pool, &side->board->pointer);
        if (result == CUDA_SUCCESS)
            CHECK(cuMemFreeAsync(address, side->stream));
        EXPECT(side->violates || result == CUDA_SUCCESS);
        CHECK(cuStreamSynchronize(side->stream));
    }
    meet();
    if (side->number == 0) {
        CHECK(cuMemFreeAsync(address, side->stream));
        CHECK(cuStreamSynchronize(side->stream));
    }
    for (int i = 0; i < 2; i++)
        CHECK(cuMemPoolDestroy(pools[i]));
}

static const struct {
    const char *name;
    void (*run)(struct side *side);
} cases[] = {
    {"memory-closed-late", memory_closed_late},
    {"memory-used-late", memory_used_late},
    {"memory-launched-late", memory_launched_late},
    {"memory-in-struct-late", memory_in_struct_late},
    {"pool-memory-freed-late", pool_memory_freed_late},
    {"event-used-late", event_used_late},
    {"memory-opened-late", memory_opened_late},
    {"event-opened-late", event_opened_late},
    {"block-released-early", block_released_early},
    {"kinds-exchanged", kinds_exchanged},
    {"sizes-exchanged", sizes_exchanged},
    {"pools-exchanged", pools_exchanged},
};

static void (*chosen)(struct side *side);

static int run(int rank)
{
    struct side side = {
        .number = rank % 2,
        .violates = is_violation && rank < 2,
        .board = &boards[rank / 2],
        .out = sockets[rank][0],
        .in = sockets[(rank + RANKS - 1) % RANKS][1]};
    begin();
    CHECK(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
    chosen(&side);
    meet();
    CHECK(cuStreamDestroy(side.stream));
    end();
    return 0;
}

int main(int count, char **arguments)
{
    EXPECT(count == 3);
    is_violation = strcmp(arguments[2], "violate") == 0;
    EXPECT(is_violation || strcmp(arguments[2], "correct") == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, arguments[1]) == 0)
            chosen = cases[i].run;
    EXPECT(chosen != NULL);
    boards = map_shared(RANKS / 2 * sizeof *boards);
    pid_t children[RANKS];
    fork_ranks(run, children);
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        EXPECT(waitpid(children[rank], &status, 0) == children[rank]);
        /* On a device a violation may end in a crash. */
        EXPECT(is_violation || status == 0);
    }
    return success();
}
