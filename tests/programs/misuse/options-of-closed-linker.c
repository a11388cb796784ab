// When a linker is closed, the array of its options' values is released, and the link state, which
// refers to it, is destroyed afterwards. The control destroys the state first.
// https://github.com/NVIDIA/cuda-python/pull/2320
// expect: link-option-values-lifetime
// may-crash: SIGSEGV
#include "program.h"

enum { OPTIONS = 3, LOG = 4096 };

struct linker {
    CUlinkState state;
    void **values;
    char log[LOG];
};

static void create(struct linker *linker)
{
    CUjit_option options[OPTIONS] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                     CU_JIT_LOG_VERBOSE};
    linker->values = calloc(OPTIONS, sizeof *linker->values);
    EXPECT(linker->values != NULL);
    linker->values[0] = linker->log;
    linker->values[1] = (void *)(uintptr_t)LOG;
    linker->values[2] = (void *)1;
    CHECK(cuLinkCreate(OPTIONS, options, linker->values, &linker->state));
}

static void close_linker(struct linker *linker)
{
#ifdef VIOLATE
    free(linker->values);
    MISUSE(cuLinkDestroy(linker->state));
#else
    CHECK(cuLinkDestroy(linker->state));
    free(linker->values);
#endif
}

int main(void)
{
    begin();
    static struct linker linker;
    void *cubin = NULL;
    size_t size = 0;
    CUmodule module = NULL;
    create(&linker);
    CHECK(cuLinkAddData(linker.state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL,
                        sizeof PTX_FILL, "fill", 0, NULL, NULL));
    CHECK(cuLinkComplete(linker.state, &cubin, &size));
    CHECK(cuModuleLoadData(&module, cubin));
    close_linker(&linker);
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
