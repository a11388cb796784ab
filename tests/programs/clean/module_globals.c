/* Module variables: read, written, changed by a kernel, a constant, their sizes; the module loaded
 * twice has two copies. */
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_GLOBALS), twin = load_ptx(PTX_GLOBALS);
    CUfunction use = function_of(module, "use_globals");
    CUdeviceptr counter = 0, table = 0, scale = 0, twin_counter = 0, out = 0;
    size_t counter_size = 0, table_size = 0, scale_size = 0;
    CHECK(cuModuleGetGlobal(&counter, &counter_size, module, "counter"));
    CHECK(cuModuleGetGlobal(&table, &table_size, module, "table"));
    CHECK(cuModuleGetGlobal(NULL, &scale_size, module, "scale")); /* only the size */
    CHECK(cuModuleGetGlobal(&scale, NULL, module, "scale"));      /* only the address */
    CHECK(cuModuleGetGlobal(&twin_counter, NULL, twin, "counter"));
    EXPECT(counter_size == 4 && table_size == 16 && scale_size == 4 && counter != twin_counter);

    uint32_t values[4] = {0}, value = 0;
    CHECK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT(value == 5);
    show("counter at first", value);
    CHECK(cuMemcpyDtoH(values, table, sizeof values));
    EXPECT(values[0] == 10 && values[3] == 40);
    show_u32("table at first", values, 4);
    CHECK(cuMemcpyDtoH(&value, scale, sizeof value));
    EXPECT(value == 3);

    uint32_t new_table[4] = {1, 2, 3, 4}, new_counter = 99, new_scale = 10;
    CHECK(cuMemcpyHtoD(table, new_table, sizeof new_table));
    CHECK(cuMemcpyHtoD(counter, &new_counter, sizeof new_counter));
    CHECK(cuMemcpyHtoD(scale, &new_scale, sizeof new_scale));
    CHECK(cuMemAlloc(&out, sizeof values));
    CHECK(cuMemsetD8(out, 0, sizeof values));
    void *parameters[] = {&out};
    launch(use, 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(values, out, sizeof values));
    show_u32("by the kernel", values, 4);
    EXPECT_KERNEL(values[0] == 110 && values[3] == 140);
    CHECK(cuMemcpyDtoH(&value, counter, sizeof value));
    EXPECT_KERNEL(value == 100);
    show("counter at last", value);
    CHECK(cuMemcpyDtoH(&value, twin_counter, sizeof value));
    EXPECT(value == 5);

    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(twin));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
