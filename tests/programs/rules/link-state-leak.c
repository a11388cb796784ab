// A link state is never destroyed; the control destroys it.
// expect: link-state-leak
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CUmodule module = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    CHECK(cuModuleLoadData(&module, cubin));
#ifndef VIOLATE
    CHECK(cuLinkDestroy(state));
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
