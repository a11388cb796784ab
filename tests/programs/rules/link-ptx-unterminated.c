// A PTX input has no NUL, neither in its size nor behind it; in the control the size counts the
// NUL.
// expect: link-ptx-unterminated
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    size_t length = strlen(PTX_FILL);
    char *text = malloc(length + 64);
    EXPECT(text != NULL);
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    memcpy(text, PTX_FILL, length);
#ifdef VIOLATE
    strcpy(text + length, "// something else that lies behind it\n");
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, length, "fill", 0, NULL, NULL));
#else
    text[length] = '\0';
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, length + 1, "fill", 0, NULL, NULL));
#endif
    CHECK(cuLinkDestroy(state));
    free(text);
    end();
    return success();
}
