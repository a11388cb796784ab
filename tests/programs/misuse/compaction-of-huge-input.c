// A library is built without checks: its plan for a huge input gets no memory, and the copy of the
// input goes where the pointer happens to point. The control's plan fails where its memory does.
// https://github.com/cudpp/cudpp/issues/73
// expect: errors-result-ignored
#include "program.h"

struct plan {
    CUdeviceptr flags, indices;
};

static int create(struct plan *plan, size_t size)
{
#ifdef VIOLATE
    MISUSE(cuMemAlloc(&plan->flags, 4096));
    MISUSE(cuMemAlloc(&plan->indices, size));
#else
    CHECK(cuMemAlloc(&plan->flags, 4096));
    if (cuMemAlloc(&plan->indices, size) != CUDA_SUCCESS) {
        CHECK(cuMemFree(plan->flags));
        return -1;
    }
#endif
    return 0;
}

static void compact(const struct plan *plan, const uint32_t *input, size_t size)
{
    MISUSE(cuMemsetD8(plan->flags, 0, 4096));
    MISUSE(cuMemcpyHtoD(plan->indices, input, size));
}

int main(void)
{
    begin();
    static uint32_t input[256];
    struct plan plan;
    memset(&plan, 0x6c, sizeof plan);
    if (create(&plan, (size_t)1 << 58) == 0) {
        compact(&plan, input, sizeof input);
        CHECK(cuMemFree(plan.flags));
    }
    end();
    return success();
}
