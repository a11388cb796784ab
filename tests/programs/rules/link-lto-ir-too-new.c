// Intermediate code of the NVVM input type, which the driver does not take any more; the control
// links PTX.
// expect: link-lto-ir-too-new
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
#ifdef VIOLATE
    static unsigned char bitcode[256] = {'B', 'C', 0xC0, 0xDE};
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_NVVM, bitcode, sizeof bitcode, "k.bc", 0, NULL, NULL));
#else
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
