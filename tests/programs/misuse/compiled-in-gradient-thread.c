// The kernel for the gradients is compiled when it is first needed, which is in the thread that
// computes them, where no context is current. The control sets the context before the load.
// https://github.com/NVIDIA/TransformerEngine/pull/734
// expect: context-none-current
#include "program.h"

#include <pthread.h>

struct kernel {
    const char *text;
    CUmodule module;
};

static CUresult compile(struct kernel *kernel)
{
    if (kernel->module != NULL)
        return CUDA_SUCCESS;
#ifndef VIOLATE
    CHECK(cuCtxSetCurrent(context));
#endif
    return cuModuleLoadData(&kernel->module, kernel->text);
}

static void *compute_gradients(void *argument)
{
    MISUSE(compile(argument));
    return NULL;
}

int main(void)
{
    begin();
    struct kernel forward = {.text = PTX_SAXPY}, backward = {.text = PTX_FILL};
    CHECK(compile(&forward));
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, compute_gradients, &backward) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    if (backward.module != NULL)
        CHECK(cuModuleUnload(backward.module));
    CHECK(cuModuleUnload(forward.module));
    end();
    return success();
}
