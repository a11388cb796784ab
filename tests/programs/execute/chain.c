/* A chain of launches, for the tests of `diff --execute` on the null driver, which runs the kernel of
 * random programs alone (driver/src/mix.rs). Each macro changes one thing:
 *   CHANGED_KERNEL   the kernel of launches 7 and 14 computes something else
 *   CHANGED_DATA     one upload has another byte; what reads it is a copy of that memory
 *   CHANGED_SEED     launch 5 has another parameter
 *   MORE_MEMORY      other addresses, and memory that holds them
 *   MORE_LAUNCHES    a launch more at the beginning */
#include "program.h"

enum { COUNT = 64, BYTES = COUNT * 4, LAUNCHES = 20 };

#define MIX(DECLARED)                                                                        \
    PTX_HEAD ".visible .entry cutape_mix(.param .u64 out, .param .u64 in, .param .u32 n, "   \
             ".param .u32 seed)" DECLARED "\n{\n ret;\n}\n"                                  \
             ".visible .entry step(.param .u64 out)\n{\n ret;\n}\n"

#ifdef CHANGED_KERNEL
#define DECLARED " .maxntid 512, 1, 1"
#else
#define DECLARED ""
#endif

static const char own[] = MIX("");
static const char other[] = MIX(DECLARED);

static CUdeviceptr uploaded(uint32_t start)
{
    uint32_t words[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        words[i] = start + i;
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemcpyHtoD(memory, words, BYTES));
    return memory;
}

static CUfunction kernel(CUmodule module, const char *name)
{
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

int main(void)
{
    begin();
    CUmodule module, changed;
    CHECK(cuModuleLoadData(&module, own));
    CHECK(cuModuleLoadData(&changed, other));
#ifdef MORE_MEMORY
    CUdeviceptr before;
    CHECK(cuMemAlloc(&before, 4096));
#endif
    CUdeviceptr sum = uploaded(1), read = uploaded(1000), copied, pointers;
    CHECK(cuMemAlloc(&copied, BYTES));
    CHECK(cuMemAlloc(&pointers, BYTES));
    /* step is given memory that holds addresses. */
    CUdeviceptr table[2] = {sum, read + 16};
    CHECK(cuMemcpyHtoD(pointers, table, sizeof table));
    CHECK(cuMemsetD32(read, 7, COUNT / 2));
    uint32_t word = 6;
#ifdef CHANGED_DATA
    word = 5;
#endif
    CHECK(cuMemcpyHtoD(read + 12, &word, sizeof word));
    CHECK(cuMemcpyDtoD(copied, read, BYTES));
    void *of_step[] = {&pointers};
#ifdef MORE_LAUNCHES
    launch(kernel(module, "step"), 1, 32, NULL, of_step);
#endif
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        uint32_t count = COUNT, seed = i;
#ifdef CHANGED_SEED
        if (i == 5)
            seed = 99;
#endif
        void *parameters[] = {&sum, &copied, &count, &seed};
        launch(kernel(i % 7 == 0 && i > 0 ? changed : module, "cutape_mix"), 1, 32, NULL, parameters);
        launch(kernel(module, "step"), 1, 32, NULL, of_step);
    }
    uint32_t words[COUNT];
    CHECK(cuMemcpyDtoH(words, sum, BYTES));
    CHECK(cuModuleUnload(changed));
    CHECK(cuModuleUnload(module));
    end();
    printf("ok\n");
    return 0;
}
