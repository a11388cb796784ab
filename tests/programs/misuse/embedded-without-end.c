// A tool turns PTX files into arrays of a source file, byte by byte and so without a NUL, and they
// are linked as text with the size of the array. The control's tool adds a NUL.
// https://github.com/arrayfire/arrayfire/pull/1544
// expect: link-ptx-unterminated
#include "program.h"

#define TEXT PTX_HEAD PTX_FILL_BODY

#ifdef VIOLATE
enum { SIZE = sizeof(TEXT) - 1 };
#else
enum { SIZE = sizeof(TEXT) };
#endif

/* What the tool wrote for one file: other data follows the text. */
static const struct {
    char text[SIZE];
    char name[16];
} fill_ptx = {TEXT, "fill.ptx"};

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    void *text = (void *)(uintptr_t)fill_ptx.text;
    if (cuLinkAddData(state, CU_JIT_INPUT_PTX, text, SIZE, fill_ptx.name, 0, NULL, NULL) ==
        CUDA_SUCCESS)
        MISUSE(cuLinkComplete(state, &cubin, &size));
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
