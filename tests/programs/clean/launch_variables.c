/* Kernels that reach variables of another module: by a parameter, and by an address in memory. One
 * writes the address of a variable to memory. */
// not-played: a kernel writes the address of a variable, which the program compares
#include "program.h"

/* The variables of the other module. */
PTX_TEXT PTX_TABLE[] = PTX_HEAD
    ".visible .global .align 4 .u32 before[3] = {1, 2, 3};\n"
    ".visible .global .align 4 .u32 table[4] = {10, 20, 30, 40};\n";

/* read(out, table): *out = table[1]. follow(out, memory): *out = ((u32 *)memory[0])[2], and
 * memory[1] gets the address of the kernel's own variable. */
PTX_TEXT PTX_FOLLOW[] = PTX_HEAD
    ".visible .global .align 4 .u32 own[2] = {7, 8};\n"
    ".visible .entry read(.param .u64 out, .param .u64 table)\n{\n"
    " .reg .b64 %out, %table;\n .reg .b32 %value;\n"
    " ld.param.u64 %out, [out];\n ld.param.u64 %table, [table];\n"
    " cvta.to.global.u64 %out, %out;\n cvta.to.global.u64 %table, %table;\n"
    " ld.global.u32 %value, [%table+4];\n"
    " st.global.u32 [%out], %value;\n"
    " ret;\n}\n"
    ".visible .entry follow(.param .u64 out, .param .u64 memory)\n{\n"
    " .reg .b64 %out, %memory, %table, %own;\n .reg .b32 %value;\n"
    " ld.param.u64 %out, [out];\n ld.param.u64 %memory, [memory];\n"
    " cvta.to.global.u64 %out, %out;\n cvta.to.global.u64 %memory, %memory;\n"
    " ld.global.u64 %table, [%memory];\n"
    " cvta.to.global.u64 %table, %table;\n"
    " ld.global.u32 %value, [%table+8];\n"
    " st.global.u32 [%out], %value;\n"
    " mov.u64 %own, own;\n"
    " cvta.global.u64 %own, %own;\n"
    " st.global.u64 [%memory+8], %own;\n"
    " ret;\n}\n";

static void check(const char *label, CUdeviceptr out, uint32_t expected)
{
    uint32_t value = 0;
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&value, out, sizeof value));
    show(label, value);
    EXPECT_KERNEL(value == expected);
}

int main(void)
{
    begin();
    CUmodule tables = load_ptx(PTX_TABLE), module = load_ptx(PTX_FOLLOW);
    CUdeviceptr table = 0, out = 0, memory = 0, words[2] = {0};
    CHECK(cuModuleGetGlobal(&table, NULL, tables, "table"));
    CHECK(cuMemAlloc(&out, 4));
    CHECK(cuMemAlloc(&memory, sizeof words));
    CHECK(cuMemsetD8(out, 0, 4));
    uint32_t values[4] = {11, 21, 31, 41};
    CHECK(cuMemcpyHtoD(table, values, sizeof values));
    void *by_parameter[] = {&out, &table};
    launch(function_of(module, "read"), 1, 1, NULL, by_parameter);
    check("by a parameter", out, 21);

    words[0] = table;
    CHECK(cuMemcpyHtoD(memory, words, sizeof words));
    void *by_memory[] = {&out, &memory};
    launch(function_of(module, "follow"), 1, 1, NULL, by_memory);
    check("by memory", out, 31);
    CUdeviceptr own = 0;
    CHECK(cuMemcpyDtoH(words, memory, sizeof words));
    CHECK(cuModuleGetGlobal(&own, NULL, module, "own"));
    EXPECT_KERNEL(words[1] == own && words[0] == table);

    CHECK(cuMemFree(memory));
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
    CHECK(cuModuleUnload(tables));
    end();
    return success();
}
