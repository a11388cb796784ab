// A compiler option is given with a cubin input; the control gives it with PTX.
// expect: link-option-without-effect
#include "cubins.h"
#include "images.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS};
    void *values[] = {(void *)32};
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
#ifdef VIOLATE
    /* relocatable, and marked as built for this device: only the option is wrong */
    unsigned char cubin[sizeof CUBIN_SM75_RELOCATABLE];
    memcpy(cubin, CUBIN_SM75_RELOCATABLE, sizeof cubin);
    cubin[49] = (unsigned char)device_arch();
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_CUBIN, cubin, sizeof cubin, "k", 1, options, values));
#else
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 1, options, values));
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
