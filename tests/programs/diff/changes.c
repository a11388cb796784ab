/* A program with one change for each macro, for the tests of diff. Without a macro it is the program
 * that the others are compared with:
 *   CHANGED_KERNEL     fill adds one more
 *   CHANGED_SHAPE      one launch has smaller blocks
 *   CHANGED_PARAMETER  one launch starts with another value
 *   CHANGED_DATA       one copy to the device has another byte
 *   LEAKED_MODULE      a module is not unloaded
 *   MORE_CALLS         three calls more
 *   REORDERED          two threads take turns in the other order at a stream that they share
 *   RESTARTED          the threads start in the other order, and do the same in the same order
 *   COMMENTED          comments and line numbers in the PTX text
 *   PADDED             a kernel takes a struct whose padding is the variable PADDING, 0 to 255
 *   FREED_REVERSED     two pieces of memory are freed in the other order
 *   OVERFLOW           the host reads one number behind a copy of the results
 *   PADDED_CHANGED     as PADDED, and a member of the struct differs, too
 * An argument is how often the launches are repeated. */
#include "program.h"

#include <pthread.h>

enum { COUNT = 1024 };

#ifdef CHANGED_KERNEL
#define ADD " add.u32 %result, %start, %index;\n add.u32 %result, %result, 1;\n"
#else
#define ADD " add.u32 %result, %start, %index;\n"
#endif

#ifdef COMMENTED
#define REMARK " // made at noon\n .loc 1 12 3\n\n"
#define FILE_LINE ".file 1 \"/tmp/elsewhere/fill.cu\"\n"
#else
#define REMARK
#define FILE_LINE
#endif

/* As PTX_FILL, and a second kernel that no macro changes. */
static const char fill_text[] = PTX_HEAD FILE_LINE
    ".visible .entry fill(.param .u64 out, .param .u32 value, .param .u32 n)\n{\n"
    " .reg .b64 %base, %address;\n .reg .b32 %start, %count, %result;\n .reg .pred %done;\n"
    PTX_GRID_STRIDE
    " ld.param.u64 %base, [out];\n"
    " cvta.to.global.u64 %base, %base;\n"
    REMARK
    " ld.param.u32 %start, [value];\n"
    " ld.param.u32 %count, [n];\n"
    "again:\n"
    " setp.ge.u32 %done, %index, %count;\n"
    " @%done bra finished;\n"
    " mad.wide.u32 %address, %index, 4, %base;\n"
    ADD
    " st.global.u32 [%address], %result;\n"
    " add.u32 %index, %index, %stride;\n"
    " bra again;\n"
    "finished:\n ret;\n}\n"
    ".visible .entry nothing()\n{\n ret;\n}\n";

#if defined PADDED || defined PADDED_CHANGED
#define HAS_PADDING

/* The parameter of by_struct. Each byte of its padding is the number in PADDING, so two runs with
 * other numbers share none. */
struct arguments {
    CUdeviceptr out;
    uint32_t a;
    uint16_t b;
    uint8_t c, first_padding;
    int64_t d;
    float e;
    uint32_t second_padding;
};

static void launch_padded(CUdeviceptr out)
{
    CUmodule module = load_ptx(PTX_BY_STRUCT);
    const char *text = getenv("PADDING");
    EXPECT(text != NULL);
    uint8_t padding = (uint8_t)atoi(text);
    struct arguments arguments = {.out = out, .a = 70000, .b = 60000, .c = 200, .d = 123,
                                  .e = 2.5f, .first_padding = padding,
                                  .second_padding = padding * 0x01010101u};
#ifdef PADDED_CHANGED
    arguments.b = 7;
#endif
    void *parameters[] = {&arguments};
    launch(function_of(module, "by_struct"), 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
}
#endif

static CUfunction fill, nothing;
static CUstream shared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void wait_for_turn(int own)
{
    pthread_mutex_lock(&lock);
    while (turn != own)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void end_turn(void)
{
    pthread_mutex_lock(&lock);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Adds work to the stream that both threads use; `number` says whose. */
static void *work(void *number)
{
    uint32_t own = *(uint32_t *)number;
#ifdef REORDERED
    uint32_t place = 1 - own;
#else
    uint32_t place = own;
#endif
    wait_for_turn((int)place);
    CHECK(cuCtxSetCurrent(context));
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, COUNT * sizeof own));
    CHECK(cuMemsetD32Async(memory, own, COUNT, shared));
    end_turn();
    wait_for_turn(2 + (int)own);
    CHECK(cuStreamSynchronize(shared));
    CHECK(cuMemFree(memory));
    end_turn();
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    begin();
    CUmodule module = load_ptx(fill_text);
    CUmodule second UNUSED = load_ptx(PTX_MARK);
    fill = function_of(module, "fill");
    nothing = function_of(module, "nothing");
    CHECK(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = 0, other = 0;
    CHECK(cuMemAlloc(&memory, COUNT * sizeof(uint32_t)));
    CHECK(cuMemAlloc(&other, COUNT * sizeof(uint32_t)));
    static uint32_t in[COUNT], out[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = i * 3;
#ifdef CHANGED_DATA
    in[700]++;
#endif
    CHECK(cuMemcpyHtoD(other, in, sizeof in));
    for (int round = 0; round < rounds; round++) {
        uint32_t start = 1000 + (uint32_t)round, count = COUNT;
        unsigned block = 256;
#ifdef CHANGED_SHAPE
        if (round == rounds / 2)
            block = 128;
#endif
#ifdef CHANGED_PARAMETER
        if (round == rounds / 2)
            start = 7;
#endif
        void *parameters[] = {&memory, &start, &count};
        launch(fill, 4, block, shared, parameters);
        launch(nothing, 1, 32, shared, NULL);
        CHECK(cuMemcpyDtoHAsync(out, memory, sizeof out, shared));
        CHECK(cuStreamSynchronize(shared));
    }
#ifdef OVERFLOW
    uint32_t *copy = malloc(sizeof out);
    memcpy(copy, out, sizeof out);
    volatile uint32_t behind = copy[rounds - 3 + COUNT];
    (void)behind;
    free(copy);
#endif
#ifdef HAS_PADDING
    launch_padded(memory);
#endif
#ifdef MORE_CALLS
    CUevent event = NULL;
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(event, shared));
    CHECK(cuEventDestroy(event));
#endif
    CHECK(cuMemcpyDtoD(memory, other, sizeof in));
    pthread_t threads[2];
    static uint32_t numbers[2] = {0, 1};
#ifdef RESTARTED
    const int first = 1;
#else
    const int first = 0;
#endif
    for (int i = 0; i < 2; i++) {
        int which = i ^ first;
        EXPECT(pthread_create(&threads[which], NULL, work, &numbers[which]) == 0);
    }
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
#ifdef FREED_REVERSED
    CHECK(cuMemFree(memory));
    CHECK(cuMemFree(other));
#else
    CHECK(cuMemFree(other));
    CHECK(cuMemFree(memory));
#endif
    CHECK(cuStreamDestroy(shared));
#ifndef LEAKED_MODULE
    CHECK(cuModuleUnload(second));
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
