// The shared memory that the fields of a stencil need is asked for as it was computed, which is
// more than a block of the device can have: setting the attribute fails, and the stencil is given
// up. The control uses fewer levels.
// https://github.com/GridTools/gridtools/pull/1390
// expect: exec-attribute-dynamic-smem-over-limit
#include "program.h"

enum { FIELDS = 3, POINTS = 1024 };

struct stencil {
    CUfunction function;
    int levels;
};

static int shared_memory(const struct stencil *stencil)
{
    return FIELDS * POINTS * stencil->levels * (int)sizeof(float);
}

static CUresult prepare(const struct stencil *stencil)
{
    const CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    return cuFuncSetAttribute(stencil->function, most, shared_memory(stencil));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    struct stencil stencil = {function_of(module, "nothing"), 40};
#ifndef VIOLATE
    int limit = 0;
    CHECK(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                               device));
    while (shared_memory(&stencil) > limit)
        stencil.levels--;
#endif
    if (prepare(&stencil) == CUDA_SUCCESS) {
        CHECK(cuLaunchKernel(stencil.function, 1, 1, 1, 32, 1, 1,
                             (unsigned)shared_memory(&stencil), NULL, NULL, NULL));
        CHECK(cuCtxSynchronize());
    }
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
