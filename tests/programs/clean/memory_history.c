/* Thirty steps, each a range of NVTX, on memory that all steps before have written: by kernels, copies
 * on the device, memsets and copies from the host. The kernel finds some of it only through an address
 * in memory, and counts in a variable that no call names. */
#include "nvtx.h"
#include "program.h"

#define STEPS 30
#define COUNT 1024
#define LONG (4 << 20)

/* step(table, out, n): *table is the address of numbers; each is increased and copied to out; out[0]
 * is how many steps there were. */
static const char PTX_STEP[] = PTX_HEAD
    ".global .u32 steps;\n"
    ".visible .entry step(.param .u64 table, .param .u64 out, .param .u32 n)\n{\n"
    " .reg .b64 %table, %out, %numbers;\n .reg .b32 %n, %i, %value;\n .reg .pred %done;\n"
    " ld.param.u64 %table, [table];\n ld.param.u64 %out, [out];\n ld.param.u32 %n, [n];\n"
    " cvta.to.global.u64 %table, %table;\n cvta.to.global.u64 %out, %out;\n"
    " ld.global.u64 %numbers, [%table];\n cvta.to.global.u64 %numbers, %numbers;\n"
    " ld.global.u32 %value, [steps];\n add.u32 %value, %value, 1;\n"
    " st.global.u32 [steps], %value;\n st.global.u32 [%out], %value;\n"
    " mov.u32 %i, 1;\n"
    "again:\n"
    " setp.ge.u32 %done, %i, %n;\n @%done bra finished;\n"
    " add.u64 %numbers, %numbers, 4;\n add.u64 %out, %out, 4;\n"
    " ld.global.u32 %value, [%numbers];\n add.u32 %value, %value, 1;\n"
    " st.global.u32 [%numbers], %value;\n st.global.u32 [%out], %value;\n"
    " add.u32 %i, %i, 1;\n bra again;\n"
    "finished:\n ret;\n}\n";

int main(void)
{
    nvtx_attach();
    begin();
    CUmodule module = load_ptx(PTX_STEP);
    CUfunction step = function_of(module, "step");
    CUdeviceptr table, numbers, out, halves, filled;
    CHECK(cuMemAlloc_v2(&table, 8));
    CHECK(cuMemAlloc_v2(&numbers, COUNT * 4));
    CHECK(cuMemAlloc_v2(&out, COUNT * 4));
    CHECK(cuMemAlloc_v2(&halves, COUNT * 8));
    CHECK(cuMemAlloc_v2(&filled, LONG));
    static uint32_t host[COUNT * 2], back[COUNT];
    for (uint32_t i = 0; i < COUNT * 2; i++)
        host[i] = i * i;
    CHECK(cuMemcpyHtoD_v2(numbers, host, COUNT * 4));
    CHECK(cuMemcpyHtoD_v2(halves, host, COUNT * 8));
    CHECK(cuMemcpyHtoD_v2(table, &numbers, 8));
    CHECK(cuMemsetD32_v2(out, 7, COUNT));
    CHECK(cuMemsetD32_v2(filled, 0x3f800000, LONG / 4));
    uint32_t n = COUNT, sum = 0;
    void *parameters[] = {&table, &out, &n};
    for (uint32_t i = 0; i < STEPS; i++) {
        nvtx_push("step");
        launch(step, 1, 1, NULL, parameters);
        /* What a step copies, the next one copies on. */
        CHECK(cuMemcpyDtoD_v2(halves + i % 2 * COUNT * 4, out, COUNT * 2));
        CHECK(cuMemcpyDtoD_v2(out + COUNT * 2, halves + (i + 1) % 2 * COUNT * 4, COUNT * 2));
        CHECK(cuMemsetD32_v2(halves + i * 4, i, 1));
        CHECK(cuMemcpyDtoH_v2(back, out, sizeof back));
        for (int j = 0; j < COUNT; j++)
            sum += back[j];
        CHECK(cuMemcpyDtoH_v2(back, halves, sizeof back));
        for (int j = 0; j < COUNT; j++)
            sum += back[j];
        CHECK(cuMemcpyDtoH_v2(back, filled + LONG / 2, sizeof back));
        EXPECT(back[i] == 0x3f800000);
        nvtx_pop();
    }
    printf("sum %u\n", sum);
    CUdeviceptr all[] = {table, numbers, out, halves, filled};
    for (int i = 0; i < 5; i++)
        CHECK(cuMemFree_v2(all[i]));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
