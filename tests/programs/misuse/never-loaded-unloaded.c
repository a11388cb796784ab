// A module is put into the list of a device before it is loaded. The load fails, and the
// destructor unloads what is in the list. The control puts it there once it is loaded.
// https://github.com/facebookresearch/TensorComprehensions/pull/299
// expect: module-ptx-jit-failure module-load-allocation-failure
#include "program.h"

struct function {
    CUmodule modules[4];
    int count;
};

static int prepare(struct function *function, const char *ptx)
{
#ifdef VIOLATE
    CUmodule *module = &function->modules[function->count++];
    *module = NULL;
    return cuModuleLoadDataEx(module, ptx, 0, NULL, NULL) == CUDA_SUCCESS ? 0 : -1;
#else
    CUmodule module = NULL;
    CHECK(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL));
    function->modules[function->count++] = module;
    return 0;
#endif
}

static void destroy(struct function *function)
{
    while (function->count > 0)
        MISUSE(cuModuleUnload(function->modules[--function->count]));
}

int main(void)
{
    begin();
    struct function function = {0};
#ifdef VIOLATE
    EXPECT(prepare(&function, PTX_HEAD ".visible .entry broken(") < 0);
#else
    EXPECT(prepare(&function, PTX_NOTHING) == 0);
#endif
    destroy(&function);
    end();
    return success();
}
