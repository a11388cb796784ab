// PTX for 32-bit addresses is added in a 64-bit process; the control has 64 and no name.
// expect: link-address-size-mismatch
// may: module-ptx-jit-failure
#include "program.h"

int main(void)
{
    begin();
    static const char NARROW[] =
        ".version 7.0\n.target sm_70\n.address_size 32\n.visible .entry k()\n{\n ret;\n}\n";
    static const char WIDE[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n";
    CUlinkState state = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
#ifdef VIOLATE
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)NARROW, sizeof NARROW, NULL, 0,
                         NULL, NULL));
    (void)WIDE;
#else
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)WIDE, sizeof WIDE, NULL, 0,
                        NULL, NULL));
    (void)NARROW;
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
