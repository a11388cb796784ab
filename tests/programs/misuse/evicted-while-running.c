// A cache of two compiled kernels unloads the older when a third comes, whose launch may not be
// over; the control's cache keeps all.
// https://github.com/ROCm/aiter/pull/5126
// expect: module-unload-work-pending
#include "program.h"

#ifdef VIOLATE
enum { SIZE = 2 };
#else
enum { SIZE = 8 };
#endif

static struct entry {
    unsigned width;
    CUmodule module;
    CUfunction function;
} cache[SIZE];
static unsigned next;

static CUfunction compiled(unsigned width)
{
    for (int i = 0; i < SIZE; i++)
        if (cache[i].module && cache[i].width == width)
            return cache[i].function;
    struct entry *entry = &cache[next++ % SIZE];
    if (entry->module)
        CHECK(cuModuleUnload(entry->module));
    char text[512];
    snprintf(text, sizeof text, PTX_HEAD ".visible .const .align 4 .u32 width = %u;\n"
             ".visible .entry prefill()\n{\n ret;\n}\n", width);
    entry->width = width;
    entry->module = load_ptx(text);
    entry->function = function_of(entry->module, "prefill");
    return entry->function;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    static const unsigned widths[] = {1, 2, 1, 2, 3, 2};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t chunk = 0; chunk < sizeof widths / sizeof *widths; chunk++)
        launch(compiled(widths[chunk]), 512, 256, stream, NULL);
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < SIZE; i++)
        if (cache[i].module)
            CHECK(cuModuleUnload(cache[i].module));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
