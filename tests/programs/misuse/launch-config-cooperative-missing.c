// A kernel that has a grid barrier is launched as an ordinary one; the control launches it
// cooperatively. Its barrier is behind a branch that is never taken.
// expect: launch-config-cooperative-missing
#include "program.h"

static const char kernel[] = PTX_HEAD
    ".visible .entry synced(.param .u64 out)\n{\n"
    " .reg .b64 %out, %workspace;\n .reg .b32 %low, %high, %old;\n .reg .pred %never;\n"
    " ld.param.u64 %out, [out];\n"
    " mov.u32 %high, %envreg1;\n mov.u32 %low, %envreg2;\n"
    " mov.b64 %workspace, {%low, %high};\n"
    " setp.eq.u64 %never, %out, 0;\n"
    " @!%never bra done;\n"
    " bar.sync 0;\n"
    " atom.global.add.u32 %old, [%workspace], 1;\n"
    "done:\n ret;\n}\n";

int main(void)
{
    begin();
    CUmodule module = load_ptx(kernel);
    CUfunction synced = function_of(module, "synced");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    CHECK(cuMemsetD32(memory, 0, 64));
    CHECK(cuCtxSynchronize());
    void *parameters[] = {&memory};
#ifdef VIOLATE
    launch(synced, 2, 32, NULL, parameters);
#else
    CHECK(cuLaunchCooperativeKernel(synced, 2, 1, 1, 32, 1, 1, 0, NULL, parameters));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
