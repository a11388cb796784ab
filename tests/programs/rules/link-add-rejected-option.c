// An option of the whole link is given to one input; the control gives it to cuLinkCreate.
// expect: link-add-rejected-option
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    float milliseconds = 0;
    CUjit_option options[] = {CU_JIT_WALL_TIME}, input_options[] = {CU_JIT_MAX_REGISTERS};
    void *values[1] = {NULL}, *input_values[] = {(void *)32};
    memcpy(&values[0], &milliseconds, sizeof milliseconds);
#ifdef VIOLATE
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    MISUSE(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                         "fill", 1, options, values));
    (void)input_options;
    (void)input_values;
#else
    CHECK(cuLinkCreate(1, options, values, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 1, input_options, input_values));
#endif
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
