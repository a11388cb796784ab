/* A sort as Thrust does it: temporary memory is cleared, used by launches and copies, and freed
 * without a wait, again and again; in between it is read back. */
// may: memory-free-pending-work
#include "program.h"

enum { COUNT = 2048, BYTES = COUNT * 4, PASSES = 3 };

int main(void)
{
    begin();
    static uint32_t values[COUNT];
    CUmodule module = load_ptx(PTX_VECTOR_ADD);
    CUfunction add = function_of(module, "vector_add");
    CUdeviceptr keys = 0;
    CHECK(cuMemAlloc(&keys, BYTES));
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = COUNT - i;
    CHECK(cuMemcpyHtoD(keys, values, BYTES));
    for (int pass = 1; pass <= PASSES; pass++) {
        CUdeviceptr temporary = 0;
        uint32_t count = COUNT;
        CHECK(cuMemAlloc(&temporary, BYTES));
        CHECK(cuMemsetD8Async(temporary, 0, BYTES, NULL));
        void *parameters[] = {&keys, &temporary, &keys, &count};
        launch(add, 4, 128, NULL, parameters);
        CHECK(cuMemcpyDtoDAsync(temporary, keys, BYTES, NULL));
        CHECK(cuMemsetD8Async(temporary, pass, BYTES, NULL));
        CHECK(cuMemFree(temporary));
        CHECK(cuMemcpyDtoH(values, keys, BYTES));
        show_u32("keys", values, COUNT);
        EXPECT(values[0] == COUNT);
    }
    CHECK(cuMemFree(keys));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
