/* Two ranks that exchange data: through memory of IPC, through physical memory, through addresses
 * that lie in device memory, and with copies. Beside each exchange is a call that is none. The
 * comments number the exchanges. The ranks are forked before the first call of the driver. */
#define RANKS 2
#include "ranks.h"

enum { BYTES = 4096 };

static struct board {
    CUipcMemHandle memory[RANKS];
} *board;
/* `direct` reads where its second parameter points, `through` where the second word there does;
 * `listed` writes where the first word behind its first parameter points. */
static const char *const kernels =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry direct(.param .u64 to, .param .u64 from) {\n"
    ".reg .b64 %p<4>; ld.param.u64 %p1, [to]; ld.param.u64 %p2, [from];\n"
    "ld.global.u64 %p3, [%p2]; st.global.u64 [%p1], %p3; ret; }\n"
    ".visible .entry through(.param .u64 to, .param .u64 table) {\n"
    ".reg .b64 %p<4>; ld.param.u64 %p1, [to]; ld.param.u64 %p2, [table];\n"
    "ld.global.u64 %p3, [%p2+8]; ld.global.u64 %p3, [%p3]; st.global.u64 [%p1], %p3; ret; }\n"
    ".visible .entry listed(.param .u64 list, .param .u64 from) {\n"
    ".reg .b64 %p<4>; ld.param.u64 %p1, [list]; ld.param.u64 %p2, [from];\n"
    "ld.global.u64 %p1, [%p1]; ld.global.u64 %p3, [%p2]; st.global.u64 [%p1], %p3; ret; }\n";

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, bytes));
    CHECK(cuMemsetD8(memory, 0, bytes));
    return memory;
}

/* A launch, and the bytes that memory then holds. */
static void launch_and_read(CUfunction kernel, CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
    unsigned char bytes[256];
    void *parameters[] = {&to, &from};
    launch(kernel, 1, 1, stream, parameters);
    CHECK(cuMemcpyDtoHAsync(bytes, to, sizeof bytes, stream));
    CHECK(cuStreamSynchronize(stream));
}

static int run(int rank)
{
    int out = sockets[rank][0], in = sockets[1 - rank][1];
    begin();
    CUmodule module = load_ptx(kernels);
    CUfunction direct = function_of(module, "direct"), through = function_of(module, "through");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr own = allocate(BYTES), other = allocate(BYTES), table = allocate(BYTES);
    CUdeviceptr large = allocate(BLOCK);

    CUdeviceptr exported = allocate(BYTES);
    CHECK(cuMemsetD8(exported, 0x11 * (rank + 1), BYTES));
    CHECK(cuIpcGetMemHandle(&board->memory[rank], exported));
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle physical = 0, private = 0, theirs = 0;
    int descriptor = -1;
    CHECK(cuMemCreate(&physical, BLOCK, &properties, 0));
    CHECK(cuMemCreate(&private, BLOCK, &properties, 0));
    /* Mapped before it is exported. */
    CUdeviceptr mapped = map_block(physical, BLOCK), mapped_private = map_block(private, BLOCK);
    CHECK(cuMemsetD8(mapped, 0x33, BLOCK));
    CHECK(cuMemsetD8(mapped_private, 0x44, BLOCK));
    CHECK(cuMemExportToShareableHandle(&descriptor, physical,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(out, descriptor);
    meet();

    CUdeviceptr imported = 0;
    CHECK(cuIpcOpenMemHandle(&imported, board->memory[1 - rank],
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    descriptor = receive_descriptor(in);
    CHECK(cuMemImportFromShareableHandle(&theirs, (void *)(uintptr_t)descriptor,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    CUdeviceptr mapped_theirs = map_block(theirs, BLOCK);

    /* 0, 1, 2, 3; and two that are none. */
    launch_and_read(direct, stream, own, other);
    launch_and_read(direct, stream, own, imported);
    launch_and_read(direct, stream, own + 512, exported);
    launch_and_read(direct, stream, own, mapped);
    launch_and_read(direct, stream, own, mapped_theirs);
    launch_and_read(direct, stream, own, mapped_private);

    /* 4: through a table; not while it leads elsewhere. */
    CUdeviceptr addresses[] = {7, other};
    CHECK(cuMemcpyHtoDAsync(table, addresses, sizeof addresses, stream));
    launch_and_read(through, stream, own, table);
    addresses[1] = imported;
    CHECK(cuMemcpyHtoDAsync(table, addresses, sizeof addresses, stream));
    launch_and_read(through, stream, own, table);
    addresses[1] = other;
    CHECK(cuMemcpyHtoDAsync(table, addresses, sizeof addresses, stream));
    launch_and_read(through, stream, own, table);

    /* 5, 6: copies from and to the other rank; one within, and two to and from the host. */
    unsigned char bytes[256];
    CHECK(cuMemcpyDtoDAsync(own + 1024, imported, 256, stream));
    CHECK(cuMemcpyDtoHAsync(bytes, own + 1024, sizeof bytes, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(bytes[0] == 0x11 * (2 - rank) && bytes[255] == bytes[0]);
    CHECK(cuMemcpyDtoD(imported + 2048, own, 256));
    CHECK(cuMemcpyDtoD(other, own, 256));
    CHECK(cuMemcpyDtoH(bytes, imported, sizeof bytes));
    CHECK(cuMemcpyHtoD(own, bytes, sizeof bytes));

    /* 7: what it writes is named in page-locked memory that the CPU has filled. */
    CUdeviceptr *list = NULL;
    CHECK(cuMemHostAlloc((void **)&list, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    list[0] = other + 128;
    void *listing[] = {&list, &imported};
    launch(function_of(module, "listed"), 1, 1, stream, listing);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost(list));

    /* 8: a launch that the driver refuses, then one that is captured. */
    void *parameters[] = {&own, &imported};
    CHECK_RESULT(CUDA_ERROR_INVALID_VALUE,
                 cuLaunchKernel(direct, 1, 1, 1, 4096, 1, 1, 0, stream, parameters, NULL));
    CUgraph graph = NULL;
    CUstream beside = NULL;
    CUdeviceptr extra = 0;
    CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(direct, 1, 1, stream, parameters);
    /* At each allocation, the recorder page-locks its memory if it could not do so before. */
    CHECK(cuMemAllocAsync(&extra, BYTES, beside));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFreeAsync(extra, beside));
    CHECK(cuStreamSynchronize(beside));
    CHECK(cuStreamDestroy(beside));

    /* 9: more than the recorder has room for, if it has 1 MiB; 10: nothing waits for the last. */
    launch_and_read(direct, stream, large, imported);
    launch(direct, 1, 1, stream, parameters);
    meet();
    if (rank == 1)
        exit(0);

    CHECK(cuStreamSynchronize(stream));
    unmap_block(mapped_theirs, BLOCK, theirs);
    CHECK(cuIpcCloseMemHandle(imported));
    unmap_block(mapped, BLOCK, physical);
    unmap_block(mapped_private, BLOCK, private);
    CUdeviceptr all[] = {own, other, table, large, exported};
    for (int i = 0; i < 5; i++)
        CHECK(cuMemFree(all[i]));
    CHECK(cuModuleUnload(module));
    CHECK(cuStreamDestroy(stream));
    end();
    return 0;
}

int main(void)
{
    board = map_shared(sizeof *board);
    pid_t children[RANKS];
    fork_ranks(run, children);
    join_ranks(children);
    return 0;
}
