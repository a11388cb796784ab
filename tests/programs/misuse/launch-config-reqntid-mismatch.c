// Builds of a kernel, tuned for blocks of 32 and of 128, and a cache that keeps the image of one
// with the block of the other; the control keeps them together.
// expect: launch-config-reqntid-mismatch
#include "program.h"

static const char tuned_32[] = PTX_HEAD
    ".visible .entry tuned() .reqntid 32, 1, 1\n" PTX_EMPTY_BODY;
static const char tuned_128[] = PTX_HEAD
    ".visible .entry tuned() .reqntid 128, 1, 1\n" PTX_EMPTY_BODY;

int main(void)
{
    begin();
    struct {
        const char *image;
        unsigned block;
    } cache[2] = {{tuned_32, 32}, {tuned_128, 128}};
#ifdef VIOLATE
    cache[1].image = tuned_32;
#endif
    for (int i = 0; i < 2; i++) {
        CUmodule module = load_ptx(cache[i].image);
        CUfunction tuned = function_of(module, "tuned");
        MISUSE(cuLaunchKernel(tuned, 1, 1, 1, cache[i].block, 1, 1, 0, NULL, NULL, NULL));
        CHECK(cuCtxSynchronize());
        CHECK(cuModuleUnload(module));
    }
    end();
    return success();
}
