/* Whether work in a blocking stream finds what earlier work of the legacy stream has written, and the
 * other way round: the first piece of work writes page-locked memory, the second reads it.
 * Prints a table: the first work, how many bytes, and for each pair of streams and second work how
 * often, of ROUNDS, that found the old bytes: at once, and with a kernel of 5 ms before the first. */
#include "program.h"

enum { LARGEST = 1 << 20, ROUNDS = 10, PAIR_COUNT = 5 };

/* delay(nanoseconds); set(to, value, bytes): one thread stores bytes; copy(to, from, bytes) */
PTX_TEXT PTX_KERNELS[] = PTX_HEAD
    ".visible .entry delay(.param .u64 nanoseconds)\n{\n"
    " .reg .b64 %begin, %now, %wanted;\n .reg .pred %early;\n"
    " ld.param.u64 %wanted, [nanoseconds];\n"
    " mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    " mov.u64 %now, %globaltimer;\n"
    " sub.u64 %now, %now, %begin;\n"
    " setp.lt.u64 %early, %now, %wanted;\n"
    " @%early bra again;\n"
    " ret;\n}\n"
    ".visible .entry set(.param .u64 to, .param .u32 value, .param .u64 bytes)\n{\n"
    " .reg .b64 %to, %end, %bytes;\n .reg .b32 %value;\n .reg .pred %more;\n"
    " ld.param.u64 %to, [to];\n ld.param.u32 %value, [value];\n ld.param.u64 %bytes, [bytes];\n"
    " add.u64 %end, %to, %bytes;\n"
    "again:\n"
    " st.global.u8 [%to], %value;\n"
    " add.u64 %to, %to, 1;\n"
    " setp.lt.u64 %more, %to, %end;\n"
    " @%more bra again;\n"
    " ret;\n}\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 bytes)\n{\n"
    " .reg .b64 %to, %from, %end, %bytes;\n .reg .b32 %value;\n .reg .pred %more;\n"
    " ld.param.u64 %to, [to];\n ld.param.u64 %from, [from];\n ld.param.u64 %bytes, [bytes];\n"
    " add.u64 %end, %to, %bytes;\n"
    "again:\n"
    " ld.global.u8 %value, [%from];\n"
    " st.global.u8 [%to], %value;\n"
    " add.u64 %to, %to, 1;\n"
    " add.u64 %from, %from, 1;\n"
    " setp.lt.u64 %more, %to, %end;\n"
    " @%more bra again;\n"
    " ret;\n}\n";

static CUfunction delay, set, copy;
static CUdeviceptr device_source, managed_source, target;
static unsigned char *between, *other_pinned;
static size_t size;
static unsigned char value;

static void run(CUfunction function, CUstream stream, void **parameters)
{
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}
static CUdeviceptr between_address(void) { return (CUdeviceptr)(uintptr_t)between; }

static void by_copy_to_host(CUstream stream)
{
    CHECK(cuMemcpyDtoHAsync(between, device_source, size, stream));
}
static void by_unified_copy(CUstream stream)
{
    CHECK(cuMemcpyAsync(between_address(), device_source, size, stream));
}
static void by_copy_of_managed(CUstream stream)
{
    CHECK(cuMemcpyAsync(between_address(), managed_source, size, stream));
}
static void by_copy_of_pinned(CUstream stream)
{
    CHECK(cuMemcpyAsync(between_address(), (CUdeviceptr)(uintptr_t)other_pinned, size, stream));
}
static void by_memset(CUstream stream)
{
    CHECK(cuMemsetD8Async(between_address(), value, size, stream));
}
static void by_kernel(CUstream stream)
{
    CUdeviceptr to = between_address();
    unsigned word = value;
    uint64_t bytes = size;
    void *parameters[] = {&to, &word, &bytes};
    run(set, stream, parameters);
}
static void copy_then_kernel(CUstream stream)
{
    uint64_t none = 0;
    void *parameters[] = {&none};
    by_copy_to_host(stream);
    run(delay, stream, parameters);
}
static const struct {
    const char *name;
    void (*write)(CUstream);
} FIRST[] = {{"cuMemcpyDtoHAsync", by_copy_to_host},     {"cuMemcpyAsync, device", by_unified_copy},
             {"cuMemcpyAsync, managed", by_copy_of_managed}, {"cuMemcpyAsync, pinned", by_copy_of_pinned},
             {"memset", by_memset},                      {"kernel", by_kernel},
             {"DtoHAsync, empty kernel", copy_then_kernel}};

static void to_device(CUstream stream)
{
    CHECK(cuMemcpyHtoDAsync(target, between, size, stream));
}
static void unified(CUstream stream)
{
    CHECK(cuMemcpyAsync(target, between_address(), size, stream));
}
static void to_pinned(CUstream stream)
{
    CHECK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)other_pinned, between_address(), size, stream));
    CHECK(cuMemcpyAsync(target, (CUdeviceptr)(uintptr_t)other_pinned, size, stream));
}
static void kernel(CUstream stream)
{
    CUdeviceptr to = target, from = between_address();
    uint64_t bytes = size;
    void *parameters[] = {&to, &from, &bytes};
    run(copy, stream, parameters);
}
static const struct {
    const char *name;
    void (*read)(CUstream);
} SECOND[] = {{"HtoDAsync", to_device}, {"cuMemcpyAsync", unified}, {"to pinned", to_pinned},
              {"kernel", kernel}};

static const char *const PAIRS[] = {"NULL, blocking", "legacy, blocking", "blocking, NULL",
                                    "blocking, legacy", "legacy, per-thread"};

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUstream blocking;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CUmodule module = load_ptx(PTX_KERNELS);
    delay = function_of(module, "delay");
    set = function_of(module, "set");
    copy = function_of(module, "copy");
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc(&device_source, LARGEST));
    CHECK(cuMemAllocManaged(&managed_source, LARGEST, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAlloc(&target, LARGEST));
    CHECK(cuMemHostAlloc((void **)&between, LARGEST, 0));
    CHECK(cuMemHostAlloc((void **)&other_pinned, LARGEST, 0));
    for (size = 128; size <= LARGEST; size *= 64) {
        for (size_t first = 0; first < sizeof FIRST / sizeof *FIRST; first++) {
            for (int pair = 0; pair < PAIR_COUNT; pair++) {
                CUstream streams[][2] = {{NULL, blocking}, {CU_STREAM_LEGACY, blocking},
                                         {blocking, NULL}, {blocking, CU_STREAM_LEGACY},
                                         {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}};
                printf("%-24s %8zu  %-22s", FIRST[first].name, size, PAIRS[pair]);
                for (size_t second = 0; second < sizeof SECOND / sizeof *SECOND; second++) {
                    int old[2] = {0, 0}, wrong = 0;
                    for (int late = 0; late < 2; late++) {
                        for (int round = 0; round < ROUNDS; round++) {
                            unsigned char was = (unsigned char)(2 * round + 1), found[2];
                            value = (unsigned char)(was + 1);
                            CHECK(cuMemsetD8(device_source, value, size));
                            CHECK(cuMemsetD8(managed_source, value, size));
                            CHECK(cuMemsetD8(target, 0, size));
                            CHECK(cuCtxSynchronize());
                            memset(other_pinned, value, size);
                            memset(between, was, size);
                            if (late) {
                                uint64_t time = 5000000;
                                void *parameters[] = {&time};
                                run(delay, streams[pair][0], parameters);
                            }
                            FIRST[first].write(streams[pair][0]);
                            SECOND[second].read(streams[pair][1]);
                            CHECK(cuCtxSynchronize());
                            CHECK(cuMemcpyDtoH(&found[0], target, 1));
                            CHECK(cuMemcpyDtoH(&found[1], target + size - 1, 1));
                            old[late] += found[0] == was || found[1] == was;
                            wrong += between[0] != value;
                        }
                    }
                    printf("  %s %d %d", SECOND[second].name, old[0], old[1]);
                    if (wrong)
                        printf(" (%d wrong)", wrong);
                }
                printf("\n");
            }
        }
    }
    return 0;
}
