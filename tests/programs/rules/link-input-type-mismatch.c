// PTX is added as if it were a cubin; the control adds PTX as PTX and a fat binary as a fat binary.
// expect: link-input-type-mismatch
#include "images.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
#ifdef VIOLATE
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_CUBIN, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                         "fill", 0, NULL, NULL));
#else
    size_t size = 0;
    unsigned char *fatbin = make_ptx_fatbin(PTX_LINK_CALLEE, &size);
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, fatbin, size, "callee", 0, NULL, NULL));
    free(fatbin);
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
