// A kernel without extern "C" is asked for by its plain name, and the program gives up, as in
// https://github.com/taichi-dev/taichi/issues/1280; the control asks for the mangled name as well.
// expect: module-symbol-not-found
#include "program.h"

PTX_TEXT SCALE[] = PTX_HEAD
    ".visible .entry _Z5scalePffi(.param .u64 p, .param .f32 f, .param .u32 n)\n{\n ret;\n}\n"
    ".visible .entry _ZN5tools5clearEv()\n{\n ret;\n}\n";

static CUfunction find(CUmodule module, const char *plain, const char *mangled)
{
    CUfunction function = NULL;
    CUresult result = cuModuleGetFunction(&function, module, plain);
#ifndef VIOLATE
    if (result == CUDA_ERROR_NOT_FOUND)
        result = cuModuleGetFunction(&function, module, mangled);
#endif
    printf("%s: %s\n", plain, result_name(result));
    (void)mangled;
    return function;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(SCALE);
    CUfunction function = find(module, "scale", "_Z5scalePffi");
    CUdeviceptr memory = 0;
    float factor = 2;
    uint32_t count = 0;
    CHECK(cuMemAlloc(&memory, 256));
    void *parameters[] = {&memory, &factor, &count};
    if (function != NULL) {
        launch(function, 1, 32, NULL, parameters);
        CHECK(cuCtxSynchronize());
    }
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
