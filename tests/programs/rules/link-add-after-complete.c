// An input is added to a completed link; the control uses a second state for it.
// expect: link-add-after-complete
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
#ifndef VIOLATE
    CHECK(cuLinkDestroy(state));
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_SAXPY, sizeof PTX_SAXPY,
                        "late", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
#else
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_SAXPY, sizeof PTX_SAXPY,
                         "late", 0, NULL, NULL));
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
