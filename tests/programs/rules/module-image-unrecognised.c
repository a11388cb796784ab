// Bytes that are no image are loaded; the control loads PTX that begins with blank lines and a
// comment.
// expect: module-image-unrecognised
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = NULL;
#ifdef VIOLATE
    static unsigned char junk[4096]; /* neither ELF nor fat binary nor PTX */
    memset(junk, 0xAB, sizeof junk - 1);
    MISUSE(cuModuleLoadData(&module, junk));
#else
    char text[sizeof PTX_FILL + 64];
    snprintf(text, sizeof text, "\n \n// PTX all the same\n%s", PTX_FILL);
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
