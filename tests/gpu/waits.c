/* Which calls wait for work of the device that is still running: a kernel of one second runs, then
 * one call is made.
 *   waits NUMBER        the case of that number, from 0
 *   waits list          how many cases there are
 * Prints its result, how long it took, and whether the kernel had ended when it
 * returned. "used" objects are used by the kernel, "other" ones are not. In the cases
 * "event ..." the result is that of a query of an event: 600 if it waits for the kernel; in those
 * "value ..." it is 0 if the value waits for it. */
#include "program.h"

#include <time.h>
#include <unistd.h>

/* spin(out, nanoseconds): runs so long, then stores 1 to *out if that is not NULL. */
PTX_TEXT PTX_SPIN[] = PTX_HEAD
    ".visible .entry spin(.param .u64 out, .param .u64 nanoseconds)\n{\n"
    " .reg .b64 %begin, %now, %wanted, %out;\n .reg .b32 %one;\n .reg .pred %early, %none;\n"
    " ld.param.u64 %wanted, [nanoseconds];\n"
    " ld.param.u64 %out, [out];\n"
    " mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    " mov.u64 %now, %globaltimer;\n"
    " sub.u64 %now, %now, %begin;\n"
    " setp.lt.u64 %early, %now, %wanted;\n"
    " @%early bra again;\n"
    " setp.eq.u64 %none, %out, 0;\n"
    " @%none bra end;\n"
    " mov.u32 %one, 1;\n"
    " st.global.u32 [%out], %one;\n"
    "end:\n"
    " ret;\n}\n";

enum { SECOND = 1000000000, SIZE = 4 << 20 };

static CUmodule module, other_module;
static CUfunction spin;
static CUlibrary library, other_library;
static CUstream stream, other_stream, blocking;
/* Where the kernel runs. */
static CUstream running;
static CUdeviceptr used, other, pool_used, managed;
static void *pinned_used, *pinned_other, *registered_used, *registered_other;
static CUevent event, late_event, done_event;
static CUarray array;
static CUgraph graph;
static CUgraphExec graph_exec;
static CUmemoryPool pool;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void run_spin(CUfunction function, CUdeviceptr out, uint64_t nanoseconds)
{
    void *parameters[] = {&out, &nanoseconds};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, running, parameters, NULL));
}

static void make_array(CUarray *made)
{
    CUDA_ARRAY_DESCRIPTOR description = {1024, 1024, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CHECK(cuArrayCreate(made, &description));
}

static void make_graph(void)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS parameters = {0};
    CUdeviceptr out = 0;
    uint64_t nanoseconds = SECOND;
    void *list[] = {&out, &nanoseconds};
    parameters.func = spin;
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = list;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &parameters));
    CHECK(cuGraphInstantiate(&graph_exec, graph, 0));
}

static void prepare(void)
{
    module = load_ptx(PTX_SPIN);
    other_module = load_ptx(PTX_SPIN);
    spin = function_of(module, "spin");
    CHECK(cuLibraryLoadData(&library, PTX_SPIN, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryLoadData(&other_library, PTX_SPIN, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    running = stream;
    CHECK(cuMemAlloc(&used, SIZE));
    CHECK(cuMemAlloc(&other, SIZE));
    CHECK(cuMemAllocAsync(&pool_used, SIZE, stream));
    CHECK(cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemHostAlloc(&pinned_used, SIZE, 0));
    CHECK(cuMemHostAlloc(&pinned_other, SIZE, 0));
    registered_used = aligned_alloc(4096, SIZE);
    registered_other = aligned_alloc(4096, SIZE);
    CHECK(cuMemHostRegister(registered_used, SIZE, 0));
    CHECK(cuMemHostRegister(registered_other, SIZE, 0));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&late_event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&done_event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(done_event, other_stream));
    make_array(&array);
    make_graph();
    CUmemPoolProps props = {0};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuMemPoolCreate(&pool, &props));
    run_spin(spin, used, 1000);
    CHECK(cuCtxSynchronize());
}

static CUdeviceptr device_of(void *host)
{
    CUdeviceptr address;
    CHECK(cuMemHostGetDevicePointer(&address, host, 0));
    return address;
}

static CUfunction function_of_library(CUlibrary from)
{
    CUkernel kernel;
    CHECK(cuLibraryGetKernel(&kernel, from, "spin"));
    return (CUfunction)kernel;
}

static void start_used(void) { run_spin(spin, used, SECOND); }
static void start_pool(void) { run_spin(spin, pool_used, SECOND); }
static void start_managed(void) { run_spin(spin, managed, SECOND); }
static void start_pinned(void) { run_spin(spin, device_of(pinned_used), SECOND); }
static void start_registered(void) { run_spin(spin, device_of(registered_used), SECOND); }
static void start_library(void) { run_spin(function_of_library(library), used, SECOND); }
static void start_graph(void) { CHECK(cuGraphLaunch(graph_exec, stream)); }
static void start_event(void)
{
    start_used();
    CHECK(cuEventRecord(event, stream));
}

static void start_blocking(void)
{
    running = blocking;
    start_used();
}
static void start_legacy(void)
{
    running = NULL;
    start_used();
}

static void start_per_thread(void)
{
    running = CU_STREAM_PER_THREAD;
    start_used();
}
/* The stream then waits for the kernel by an event. */
static void start_awaited_in(CUstream waiting)
{
    start_event();
    CHECK(cuStreamWaitEvent(waiting, event, 0));
}
static void start_awaited_legacy(void) { start_awaited_in(NULL); }
static void start_awaited_blocking(void) { start_awaited_in(blocking); }
static void start_awaited_other(void) { start_awaited_in(other_stream); }
static void start_recorded_legacy(void)
{
    start_blocking();
    CHECK(cuEventRecord(event, NULL));
}

/* An event that is complete, and one that was never recorded. */
static void wait_for_done(CUstream waiting)
{
    CHECK(cuStreamWaitEvent(waiting, done_event, 0));
}
static void wait_for_new(CUstream waiting)
{
    CHECK(cuStreamWaitEvent(waiting, late_event, 0));
}
static void start_legacy_then_record(void)
{
    start_legacy();
    CHECK(cuEventRecord(event, blocking));
}
static void start_legacy_then_wait(void)
{
    start_legacy();
    wait_for_done(blocking);
}
static void start_legacy_then_wait_new(void)
{
    start_legacy();
    wait_for_new(blocking);
}
static void start_blocking_then_wait(void)
{
    start_blocking();
    wait_for_done(NULL);
}
static void start_blocking_then_wait_new(void)
{
    start_blocking();
    wait_for_new(NULL);
}

/* Whether the stream has written a value after a while: 1, or 0. */
static int write_after(CUstream writing, int batched)
{
    volatile uint32_t *value = pinned_other;
    CUdeviceptr address = device_of(pinned_other);
    *value = 0;
    if (batched) {
        CUstreamBatchMemOpParams operation = {0};
        operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        operation.writeValue.address = address;
        operation.writeValue.value = 1;
        CHECK(cuStreamBatchMemOp(writing, 1, &operation, 0));
    } else {
        CHECK(cuStreamWriteValue32(writing, address, 1, 0));
    }
    usleep(50000);
    return (int)*value;
}
static int write_legacy(void) { return write_after(NULL, 0); }
static int write_batched_legacy(void) { return write_after(NULL, 1); }
static int write_blocking(void) { return write_after(blocking, 0); }
static int write_batched_blocking(void) { return write_after(blocking, 1); }
static int write_batched_own(void) { return write_after(stream, 1); }
/* Whether a memset in the blocking stream waits for the value that the legacy stream writes after the
 * kernel: an event after it is pending. */
static int memset_blocking(void);
static int memset_after_write(void)
{
    CHECK(cuStreamWriteValue32(NULL, device_of(pinned_other), 1, 0));
    return memset_blocking();
}

/* The same for memory of a pool that is allocated, or freed, in the legacy stream. */
static int memset_after_allocation(void)
{
    CUdeviceptr allocated;
    CHECK(cuMemAllocAsync(&allocated, SIZE, NULL));
    return memset_blocking();
}
static int memset_after_free(void)
{
    CUdeviceptr allocated;
    CHECK(cuMemAllocAsync(&allocated, SIZE, other_stream));
    CHECK(cuMemFreeAsync(allocated, NULL));
    return memset_blocking();
}

/* Whether an event that is recorded there now is still pending after a while. */
static int record_in(CUstream recording)
{
    CHECK(cuEventRecord(late_event, recording));
    usleep(50000);
    return cuEventQuery(late_event);
}
static int record_after_memset(CUstream recording)
{
    CHECK(cuMemsetD8Async(other, 1, 16, recording));
    return record_in(recording);
}
static int record_blocking(void) { return record_in(blocking); }
static int record_per_thread(void) { return record_in(CU_STREAM_PER_THREAD); }
static int record_legacy(void) { return record_in(NULL); }
static int memset_blocking(void) { return record_after_memset(blocking); }
static int memset_per_thread(void) { return record_after_memset(CU_STREAM_PER_THREAD); }
static int memset_legacy(void) { return record_after_memset(NULL); }
static int query_blocking(void) { return cuStreamQuery(blocking); }
static int query_per_thread(void) { return cuStreamQuery(CU_STREAM_PER_THREAD); }
static int synchronize_per_thread(void) { return cuStreamSynchronize(CU_STREAM_PER_THREAD); }
static int wait_in_blocking(void)
{
    CHECK(cuStreamWaitEvent(other_stream, event, 0));
    return record_in(other_stream);
}
/* The non-blocking stream waits for an event of a blocking stream without work. */
static int wait_for_blocking(void)
{
    CHECK(cuEventRecord(event, blocking));
    return wait_in_blocking();
}

static int synchronize_other(void) { return cuStreamSynchronize(other_stream); }
static int query_other(void) { return cuStreamQuery(other_stream); }
static int synchronize_legacy(void) { return cuStreamSynchronize(NULL); }
static int query_legacy(void) { return cuStreamQuery(NULL); }
static int synchronize_blocking(void) { return cuStreamSynchronize(blocking); }
static int memset_pinned(void) { return cuMemsetD8(device_of(pinned_other), 1, SIZE); }
static int free_used(void) { return cuMemFree(used); }
static int free_other(void) { return cuMemFree(other); }
static int free_managed(void) { return cuMemFree(managed); }
static int free_pool(void) { return cuMemFree(pool_used); }
static int free_async(void) { return cuMemFreeAsync(pool_used, other_stream); }
static int free_host_used(void) { return cuMemFreeHost(pinned_used); }
static int free_host_other(void) { return cuMemFreeHost(pinned_other); }
static int unregister_used(void) { return cuMemHostUnregister(registered_used); }
static int unregister_other(void) { return cuMemHostUnregister(registered_other); }
static int unload_used(void) { return cuModuleUnload(module); }
static int unload_other(void) { return cuModuleUnload(other_module); }
static int unload_library(void) { return cuLibraryUnload(library); }
static int unload_other_library(void) { return cuLibraryUnload(other_library); }
static int destroy_array(void) { return cuArrayDestroy(array); }
static int destroy_stream(void) { return cuStreamDestroy(stream); }
static int destroy_event(void) { return cuEventDestroy(event); }
static int destroy_graph(void) { return cuGraphDestroy(graph); }
static int destroy_exec(void) { return cuGraphExecDestroy(graph_exec); }
static int destroy_pool(void) { return cuMemPoolDestroy(pool); }
static int trim_pool(void) { return cuMemPoolTrimTo(pool, 0); }
static int alloc(void) { CUdeviceptr p; return cuMemAlloc(&p, 64 << 20); }
static int alloc_small(void) { CUdeviceptr p; return cuMemAlloc(&p, 256); }
static int alloc_host(void) { void *p; return cuMemHostAlloc(&p, SIZE, 0); }
static int alloc_managed(void) { CUdeviceptr p; return cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL); }
static int alloc_async(void) { CUdeviceptr p; return cuMemAllocAsync(&p, SIZE, other_stream); }
static int create_array(void) { CUarray a; CUDA_ARRAY_DESCRIPTOR d = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1}; return cuArrayCreate(&a, &d); }
static int create_stream(void) { CUstream s; return cuStreamCreate(&s, 0); }
static int create_event(void) { CUevent e; return cuEventCreate(&e, 0); }
static int load_module(void) { CUmodule m; return cuModuleLoadData(&m, PTX_SPIN); }
static int load_library(void) { CUlibrary l; return cuLibraryLoadData(&l, PTX_SPIN, NULL, NULL, 0, NULL, NULL, 0); }
static int find_function(void) { CUfunction f; return cuModuleGetFunction(&f, other_module, "spin"); }
static int memory_info(void) { size_t a, b; return cuMemGetInfo(&a, &b); }
static int memset_other(void) { return cuMemsetD8(other, 1, SIZE); }
static char pageable[SIZE];
static int copy_to_device(void) { return cuMemcpyHtoD(other, pageable, SIZE); }
static int copy_word_to_device(void) { return cuMemcpyHtoD(other, pageable, 4); }
static int copy_64k_to_device(void) { return cuMemcpyHtoD(other, pageable, 64 << 10); }
static int copy_pinned_to_device(void) { return cuMemcpyHtoD(other, pinned_other, SIZE); }
static int copy_pinned_word_to_device(void) { return cuMemcpyHtoD(other, pinned_other, 4); }
static int copy_word_unified(void) { return cuMemcpy(other, (CUdeviceptr)(uintptr_t)pageable, 4); }
static int copy_word_to_managed(void) { return cuMemcpyHtoD(managed, pageable, 4); }
static int unify(CUdeviceptr to, CUdeviceptr from, size_t size) { return cuMemcpy(to, from, size); }
static int unify_pinned_to_device(void) { return unify(other, device_of(pinned_other), SIZE); }
static int unify_pinned_word_to_device(void) { return unify(other, device_of(pinned_other), 4); }
static int unify_word_to_pinned(void) { return unify(device_of(pinned_other), other, 4); }
static int unify_pinned_to_managed(void) { return unify(managed, device_of(pinned_other), SIZE); }
static int unify_registered_word_to_managed(void) { return unify(managed, device_of(registered_other), 4); }
static int unify_managed_word_to_pinned(void) { return unify(device_of(pinned_other), managed, 4); }
static int unify_pinned_words(void) { return unify(device_of(pinned_other), device_of(pinned_used), 4); }
static int unify_managed_word_to_device(void) { return unify(other, managed, 4); }
static int unify_word_to_managed(void) { return unify(managed, other, 4); }
static int unify_managed_word_to_pageable(void) { return unify((CUdeviceptr)(uintptr_t)pageable, managed, 4); }
static int write_value(CUdeviceptr at) { return cuStreamWriteValue32(other_stream, at, 1, 0); }
static int write_value_device(void) { return write_value(other); }
static int write_value_pool(void) { return write_value(pool_used); }
static int write_value_managed(void) { return write_value(managed); }
static int write_value_registered(void) { return write_value(device_of(registered_other)); }
static int wait_value_pool(void) { return cuStreamWaitValue32(other_stream, pool_used, 0, CU_STREAM_WAIT_VALUE_GEQ); }
static int copy_word_on_device(void) { return cuMemcpyDtoD(other, used, 4); }
static int copy_from_device(void) { static char bytes[SIZE]; return cuMemcpyDtoH(bytes, other, SIZE); }
static int copy_async_pageable(void) { static char bytes[SIZE]; return cuMemcpyDtoHAsync(bytes, other, SIZE, other_stream); }
static int instantiate(void) { CUgraphExec e; return cuGraphInstantiate(&e, graph, 0); }
static int create_context(void) { CUcontext c; CUdevice d; int r; cuCtxGetDevice(&d); r = cuDevicePrimaryCtxRetain(&c, d); return r; }
static int set_limit(void) { return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20); }
static int synchronize(void) { return cuCtxSynchronize(); }
static int release_primary(void) { CUdevice d = 0; return cuDevicePrimaryCtxRelease(d); }
static int reset_primary(void) { CUdevice d = 0; return cuDevicePrimaryCtxReset(d); }
static int destroy_context(void) { CUcontext c; cuCtxGetCurrent(&c); return cuCtxDestroy(c); }

static const struct {
    const char *name;
    void (*start)(void);
    int (*call)(void);
} CASES[] = {
    {"cuCtxSynchronize", start_used, synchronize},
    {"cuStreamSynchronize (legacy; kernel in a blocking stream)", start_blocking, synchronize_legacy},
    {"cuStreamQuery (legacy; kernel in a blocking stream)", start_blocking, query_legacy},
    {"cuStreamSynchronize (blocking, empty; kernel in legacy)", start_legacy, synchronize_blocking},
    {"cuStreamSynchronize (per-thread, empty; kernel in legacy)", start_legacy, synchronize_per_thread},
    {"cuStreamQuery (blocking, empty; kernel in legacy)", start_legacy, query_blocking},
    {"cuStreamQuery (per-thread, empty; kernel in legacy)", start_legacy, query_per_thread},
    {"event in blocking, empty; kernel in legacy", start_legacy, record_blocking},
    {"event in per-thread, empty; kernel in legacy", start_legacy, record_per_thread},
    {"event behind a memset in blocking; kernel in legacy", start_legacy, memset_blocking},
    {"event behind a memset in per-thread; kernel in legacy", start_legacy, memset_per_thread},
    {"event in legacy; kernel in blocking", start_blocking, record_legacy},
    {"event in legacy; kernel in per-thread", start_per_thread, record_legacy},
    {"event behind a memset in legacy; kernel in blocking", start_blocking, memset_legacy},
    {"event in non-blocking after one of blocking, empty; kernel in legacy", start_legacy, wait_for_blocking},
    {"event in per-thread; legacy has an event behind the kernel in blocking", start_recorded_legacy, record_per_thread},
    {"event behind a memset in per-thread; as before", start_recorded_legacy, memset_per_thread},
    {"event in legacy, which waits for the kernel", start_awaited_legacy, record_legacy},
    {"event in blocking; legacy waits for the kernel", start_awaited_legacy, record_blocking},
    {"event behind a memset in blocking; legacy waits for the kernel", start_awaited_legacy, memset_blocking},
    {"event in legacy; blocking waits for the kernel", start_awaited_blocking, record_legacy},
    {"event behind a memset in legacy; blocking waits for the kernel", start_awaited_blocking, memset_legacy},
    {"event behind a memset in per-thread; blocking waits for the kernel", start_awaited_blocking, memset_per_thread},
    {"cuStreamSynchronize (blocking, with an event; kernel in legacy)", start_legacy_then_record, synchronize_blocking},
    {"cuStreamSynchronize (blocking, waits for a complete event; legacy)", start_legacy_then_wait, synchronize_blocking},
    {"cuStreamSynchronize (blocking, waits for a new event; legacy)", start_legacy_then_wait_new, synchronize_blocking},
    {"cuStreamQuery (blocking, waits for a complete event; legacy)", start_legacy_then_wait, query_blocking},
    {"event in per-thread; legacy waits for a complete event; blocking", start_blocking_then_wait, record_per_thread},
    {"event in per-thread; legacy waits for a new event; blocking", start_blocking_then_wait_new, record_per_thread},
    {"cuStreamSynchronize (non-blocking, waits for the kernel)", start_awaited_other, synchronize_other},
    {"cuStreamQuery (non-blocking, waits for the kernel)", start_awaited_other, query_other},
    {"cuStreamSynchronize (blocking, waits for the kernel)", start_awaited_blocking, synchronize_blocking},
    {"cuStreamSynchronize (legacy, waits for the kernel)", start_awaited_legacy, synchronize_legacy},
    {"cuStreamSynchronize (legacy; blocking waits for the kernel)", start_awaited_blocking, synchronize_legacy},
    {"cuStreamSynchronize (blocking; legacy waits for the kernel)", start_awaited_legacy, synchronize_blocking},
    {"value in legacy; kernel in blocking", start_blocking, write_legacy},
    {"value in legacy, batched; kernel in blocking", start_blocking, write_batched_legacy},
    {"value in blocking; kernel in legacy", start_legacy, write_blocking},
    {"value in blocking, batched; kernel in legacy", start_legacy, write_batched_blocking},
    {"value in the kernel's stream, batched", start_used, write_batched_own},
    {"event after a memset in blocking; value in legacy; kernel in per-thread", start_per_thread, memset_after_write},
    {"event after a memset in blocking; allocation in legacy; kernel in per-thread", start_per_thread, memset_after_allocation},
    {"event after a memset in blocking; free in legacy; kernel in per-thread", start_per_thread, memset_after_free},
    {"cuMemsetD8 (pinned; kernel in a blocking stream)", start_blocking, memset_pinned},
    {"cuMemFree (used)", start_used, free_used},
    {"cuMemFree (other)", start_used, free_other},
    {"cuMemFree (managed, used)", start_managed, free_managed},
    {"cuMemFree (of a pool, used)", start_pool, free_pool},
    {"cuMemFreeAsync (used, other stream)", start_pool, free_async},
    {"cuMemFreeHost (used)", start_pinned, free_host_used},
    {"cuMemFreeHost (other)", start_used, free_host_other},
    {"cuMemHostUnregister (used)", start_registered, unregister_used},
    {"cuMemHostUnregister (other)", start_used, unregister_other},
    {"cuModuleUnload (used)", start_used, unload_used},
    {"cuModuleUnload (other)", start_used, unload_other},
    {"cuLibraryUnload (used)", start_library, unload_library},
    {"cuLibraryUnload (other)", start_used, unload_other_library},
    {"cuArrayDestroy (other)", start_used, destroy_array},
    {"cuStreamDestroy (used)", start_used, destroy_stream},
    {"cuEventDestroy (recorded behind it)", start_event, destroy_event},
    {"cuGraphDestroy (running)", start_graph, destroy_graph},
    {"cuGraphExecDestroy (running)", start_graph, destroy_exec},
    {"cuMemPoolDestroy (other)", start_used, destroy_pool},
    {"cuMemPoolTrimTo (other)", start_used, trim_pool},
    {"cuMemAlloc (64 MiB)", start_used, alloc},
    {"cuMemAlloc (256 bytes)", start_used, alloc_small},
    {"cuMemHostAlloc", start_used, alloc_host},
    {"cuMemAllocManaged", start_used, alloc_managed},
    {"cuMemAllocAsync (other stream)", start_used, alloc_async},
    {"cuArrayCreate", start_used, create_array},
    {"cuStreamCreate", start_used, create_stream},
    {"cuEventCreate", start_used, create_event},
    {"cuModuleLoadData", start_used, load_module},
    {"cuLibraryLoadData", start_used, load_library},
    {"cuModuleGetFunction (first)", start_used, find_function},
    {"cuMemGetInfo", start_used, memory_info},
    {"cuMemsetD8 (other)", start_used, memset_other},
    {"cuMemcpyHtoD (other, pageable)", start_used, copy_to_device},
    {"cuMemcpyHtoD (4 MiB, pageable; kernel in legacy)", start_legacy, copy_to_device},
    {"cuMemcpyHtoD (64 KiB, pageable; kernel in legacy)", start_legacy, copy_64k_to_device},
    {"cuMemcpyHtoD (4 bytes, pageable; kernel in legacy)", start_legacy, copy_word_to_device},
    {"cuMemcpyHtoD (4 bytes, pageable; kernel in blocking)", start_blocking, copy_word_to_device},
    {"cuMemcpyHtoD (4 MiB, pinned; kernel in legacy)", start_legacy, copy_pinned_to_device},
    {"cuMemcpyHtoD (4 bytes, pinned; kernel in legacy)", start_legacy, copy_pinned_word_to_device},
    {"cuMemcpyHtoD (4 bytes, to managed; kernel in legacy)", start_legacy, copy_word_to_managed},
    {"cuMemcpy (4 bytes, pageable to device; legacy)", start_legacy, copy_word_unified},
    {"cuMemcpy (4 MiB, pinned to device; legacy)", start_legacy, unify_pinned_to_device},
    {"cuMemcpy (4 bytes, pinned to device; legacy)", start_legacy, unify_pinned_word_to_device},
    {"cuMemcpy (4 bytes, device to pinned; legacy)", start_legacy, unify_word_to_pinned},
    {"cuMemcpy (4 MiB, pinned to managed; legacy)", start_legacy, unify_pinned_to_managed},
    {"cuMemcpy (4 bytes, registered to managed; legacy)", start_legacy, unify_registered_word_to_managed},
    {"cuMemcpy (4 bytes, managed to pinned; legacy)", start_legacy, unify_managed_word_to_pinned},
    {"cuMemcpy (4 bytes, pinned to pinned; legacy)", start_legacy, unify_pinned_words},
    {"cuMemcpy (4 bytes, managed to device; legacy)", start_legacy, unify_managed_word_to_device},
    {"cuMemcpy (4 bytes, device to managed; legacy)", start_legacy, unify_word_to_managed},
    {"cuMemcpy (4 bytes, managed to pageable; legacy)", start_legacy, unify_managed_word_to_pageable},
    {"cuStreamWriteValue32 (device)", start_used, write_value_device},
    {"cuStreamWriteValue32 (of a pool)", start_used, write_value_pool},
    {"cuStreamWriteValue32 (managed)", start_used, write_value_managed},
    {"cuStreamWriteValue32 (registered)", start_used, write_value_registered},
    {"cuStreamWaitValue32 (of a pool)", start_used, wait_value_pool},
    {"cuMemcpyDtoD (4 bytes; kernel in legacy)", start_legacy, copy_word_on_device},
    {"cuMemcpyDtoH (other, pageable)", start_used, copy_from_device},
    {"cuMemcpyDtoHAsync (other, pageable)", start_used, copy_async_pageable},
    {"cuGraphInstantiate", start_used, instantiate},
    {"cuDevicePrimaryCtxRetain", start_used, create_context},
    {"cuCtxSetLimit (heap)", start_used, set_limit},
    {"cuCtxDestroy", start_used, destroy_context},
    {"cuDevicePrimaryCtxRelease (last)", start_used, release_primary},
    {"cuDevicePrimaryCtxReset", start_used, reset_primary},
};

int main(int count, char **words)
{
    if (count == 1) {
        fputs("waits NUMBER: one case, or `waits list`\n", stderr);
        return 2;
    }
    int cases = (int)(sizeof CASES / sizeof CASES[0]);
    if (strcmp(words[1], "list") == 0) {
        printf("%d\n", cases);
        return 0;
    }
    int at = atoi(words[1]);
    if (at < 0 || at >= cases)
        return 2;
    CHECK(cuInit(0));
    CUcontext context;
    if (strstr(CASES[at].name, "Primary") != NULL) {
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        CHECK(cuCtxSetCurrent(context));
    } else {
        CHECK(cuCtxCreate_v2(&context, 0, 0));
    }
    prepare();
    double begin = now();
    CASES[at].start();
    double started = now();
    int result = CASES[at].call();
    double ended = now();
    /* A stream that is gone must not be asked: then the time alone tells. */
    int is_gone = strstr(CASES[at].name, "cuStreamDestroy") || strstr(CASES[at].name, "cuCtxDestroy") ||
                  strstr(CASES[at].name, "Release") || strstr(CASES[at].name, "Reset");
    int query = is_gone ? -1 : cuStreamQuery(running);
    printf("%-70s result %3d  launch %6.1f ms  call %7.1f ms  kernel after it: %s\n",
           CASES[at].name, result, started - begin, ended - started,
           query == 600 ? "running" : query == 0 ? "done" : "not known");
    fflush(stdout);
    _exit(0);
}
