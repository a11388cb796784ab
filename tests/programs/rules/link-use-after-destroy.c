// A link is completed after its state was destroyed; the control makes a new state.
// expect: link-use-after-destroy
// crashes: SIGSEGV
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkDestroy(state));
#ifdef VIOLATE
    MISUSE(cuLinkComplete(state, &cubin, &size));
#else
    CHECK(cuLinkCreate(0, NULL, NULL, &state)); /* perhaps the same pointer */
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    CHECK(cuLinkDestroy(state));
#endif
    end();
    return success();
}
