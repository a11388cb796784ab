// Two inputs define the same entry; in the control one defines what the other declares.
// expect: link-non-relocatable-input
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
#ifdef VIOLATE
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL, "a",
                        0, NULL, NULL));
    CUresult result = cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL,
                                    sizeof PTX_FILL, "b", 0, NULL, NULL);
    if (result == CUDA_SUCCESS) /* then the link itself has to find it */
        MISUSE(cuLinkComplete(state, &cubin, &size));
#else
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLER,
                        sizeof PTX_LINK_CALLER, "a", 0, NULL, NULL));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLEE,
                        sizeof PTX_LINK_CALLEE, "b", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
