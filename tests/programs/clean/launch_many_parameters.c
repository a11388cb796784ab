/* Ten parameters of every size: integers of 1, 2, 4 and 8 bytes, float, double. */
#include "program.h"

enum { COUNT = 9 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_MANY);
    CUfunction many = function_of(module, "many");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, COUNT * 8));
    CHECK(cuMemsetD8(memory, 0, COUNT * 8));
    uint8_t p8 = 250, q8 = 7;
    uint16_t p16 = 65000;
    uint32_t p32 = 4000000000u, q32 = 11;
    uint64_t p64 = 0x0123456789abcdefull, q64 = ~0ull;
    float pf = 1.5f;
    double pd = -2.0;
    void *parameters[] = {&memory, &p8, &p16, &p32, &p64, &pf, &pd, &q8, &q32, &q64};
    launch(many, 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
    static const uint64_t WANTED[COUNT] = {
        250, 65000, 4000000000u, 0x0123456789abcdefull, 0x3fc00000, 0xc000000000000000ull, 7, 11,
        ~0ull,
    };
    uint64_t values[COUNT];
    CHECK(cuMemcpyDtoH(values, memory, sizeof values));
    for (int i = 0; i < COUNT; i++) {
        printf("%d: %#llx\n", i, (unsigned long long)values[i]);
        EXPECT_KERNEL(values[i] == WANTED[i]);
    }
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
