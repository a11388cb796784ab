/* A link with options: logs, their sizes, wall time, optimisation; options of one input; a link
 * given up halfway. */
#include "program.h"

int main(void)
{
    begin();
    static char info[4096], error[4096];
    CUjit_option options[] = {
        CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_LOG_VERBOSE,     CU_JIT_WALL_TIME,                  CU_JIT_OPTIMIZATION_LEVEL,
    };
    void *values[] = {info, (void *)sizeof info, error, (void *)sizeof error, (void *)1, NULL,
                      (void *)2};
    CUjit_option input_option[] = {CU_JIT_MAX_REGISTERS};
    void *input_value[] = {(void *)40};
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(7, options, values, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLER,
                        sizeof PTX_LINK_CALLER, "caller", 1, input_option, input_value));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLEE,
                        sizeof PTX_LINK_CALLEE, "callee", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    CUmodule module = NULL;
    CHECK(cuModuleLoadDataEx(&module, cubin, 0, NULL, NULL));
    CHECK(cuLinkDestroy(state));
    EXPECT((size_t)(uintptr_t)values[1] <= sizeof info && memchr(info, '\0', sizeof info) != NULL);
    EXPECT((size_t)(uintptr_t)values[3] <= sizeof error
           && memchr(error, '\0', sizeof error) != NULL);
    CHECK(cuModuleUnload(module));
    printf("linked with options\n");

    /* a link that is given up: the options are set anew, the state is destroyed without being
     * completed */
    values[1] = (void *)sizeof info;
    values[3] = (void *)sizeof error;
    values[5] = NULL;
    CHECK(cuLinkCreate(7, options, values, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_LINK_CALLER,
                        sizeof PTX_LINK_CALLER, "alone", 0, NULL, NULL));
    CHECK(cuLinkDestroy(state));
    printf("given up\n");
    end();
    return success();
}
