// Autotuning loads many variants of a kernel and measures each, and their modules stay loaded,
// until the driver has no room for more. The control unloads each one after it was measured.
// https://github.com/pytorch/pytorch/pull/176988
// expect: module-live-growth
// may: performance-jit-at-run-time
#include "program.h"

enum { VARIANTS = 96, REPEATS = 2 };

struct variant {
    CUmodule module;
    CUfunction function;
};

static void load(struct variant *variant, unsigned tile)
{
    char text[512];
    snprintf(text, sizeof text, PTX_HEAD ".visible .const .align 4 .u32 tile = %u;\n"
             ".visible .entry matmul()\n{\n ret;\n}\n", tile);
    variant->module = load_ptx(text);
    variant->function = function_of(variant->module, "matmul");
}

static void benchmark(const struct variant *variant, CUevent before, CUevent after)
{
    launch(variant->function, 1, 32, NULL, NULL);
    CHECK(cuEventRecord(before, NULL));
    for (int i = 0; i < REPEATS; i++)
        launch(variant->function, 1, 32, NULL, NULL);
    CHECK(cuEventRecord(after, NULL));
    CHECK(cuEventSynchronize(after));
    float milliseconds = 0;
    CHECK(cuEventElapsedTime(&milliseconds, before, after));
}

int main(void)
{
    begin();
    CUevent before = NULL, after = NULL;
    CHECK(cuEventCreate(&before, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&after, CU_EVENT_DEFAULT));
    for (unsigned tile = 1; tile <= VARIANTS; tile++) {
        struct variant variant;
        load(&variant, tile);
        benchmark(&variant, before, after);
#ifndef VIOLATE
        CHECK(cuModuleUnload(variant.module));
#endif
    }
    CHECK(cuEventDestroy(after));
    CHECK(cuEventDestroy(before));
    end();
    return success();
}
