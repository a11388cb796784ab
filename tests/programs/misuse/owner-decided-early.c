// A state decides whether it owns its memory before its data is copied to the device, and so never
// frees the copy; the control decides afterwards.
// https://github.com/NVIDIA/cuda-quantum/pull/4521
// expect: memory-leak
#include "program.h"

struct state {
    CUdeviceptr data;
    int owns;
};

static int copy_if_on_host(CUdeviceptr *data, const void *given, size_t bytes)
{
    CUmemorytype type = 0;
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                              (CUdeviceptr)(uintptr_t)given) == CUDA_SUCCESS) {
        *data = (CUdeviceptr)(uintptr_t)given;
        return 0;
    }
    CHECK(cuMemAlloc(data, bytes));
    CHECK(cuMemcpyHtoD(*data, given, bytes));
    return 1;
}

static struct state from_data(const void *given, size_t bytes)
{
    struct state state = {0};
    int copied = copy_if_on_host(&state.data, given, bytes);
#ifndef VIOLATE
    state.owns = copied;
#else
    (void)copied;
#endif
    return state;
}

static void destroy(struct state *state)
{
    if (state->owns)
        CHECK(cuMemFree(state->data));
}

int main(void)
{
    begin();
    static float amplitudes[1024];
    for (int round = 0; round < 30; round++) {
        struct state state = from_data(amplitudes, sizeof amplitudes);
        destroy(&state);
    }
    end();
    return success();
}
