// The memory of output options is unmapped before the link state is destroyed; in the control only
// input options end early.
// expect: link-option-values-lifetime
// crashes: SIGSEGV
// The driver was seen to write into a dead stack frame without a fault. That it faults when it
// writes the log to unmapped memory is assumed.
#include "program.h"
#include <sys/mman.h>

#ifdef VIOLATE
struct outputs {
    void *values[3];
    char log[8000];
};
#else
/* The arrays end on return, which is allowed: the driver writes nothing to them. */
static __attribute__((noinline)) void start_with_inputs(CUlinkState *state)
{
    CUjit_option options[] = {CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {(void *)3};
    CHECK(cuLinkCreate(1, options, values, state));
}
#endif

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
#ifdef VIOLATE
    struct outputs *outputs = mmap(NULL, sizeof *outputs, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(outputs != MAP_FAILED);
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_LOG_VERBOSE};
    outputs->values[0] = outputs->log;
    outputs->values[1] = (void *)sizeof outputs->log;
    outputs->values[2] = (void *)1;
    CHECK(cuLinkCreate(3, options, outputs->values, &state));
    /* like free, but the addresses are not reused */
    EXPECT(mprotect(outputs, sizeof *outputs, PROT_NONE) == 0);
#else
    start_with_inputs(&state);
#endif
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    CHECK(cuLinkDestroy(state));
#ifdef VIOLATE
    EXPECT(munmap(outputs, sizeof *outputs) == 0);
#endif
    end();
    return success();
}
