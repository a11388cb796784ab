// A link refuses PTX that is newer than the driver, and the program completes it without: the
// kernel is missing, and the launch fails. One finding, for the input. The control links PTX that
// fits.
// expect: module-ptx-jit-failure
#include "program.h"

int main(void)
{
    begin();
#ifdef VIOLATE
    static char text[] = ".version 99.0\n.target sm_70\n.address_size 64\n"
                         ".visible .entry work()\n{\n ret;\n}\n";
#else
    static char text[] = PTX_HEAD ".visible .entry work()\n{\n ret;\n}\n";
#endif
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CUmodule module = NULL;
    CUfunction work = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    cuLinkAddData(state, CU_JIT_INPUT_PTX, text, sizeof text, "work.ptx", 0, NULL, NULL);
    cuLinkComplete(state, &cubin, &size);
    cuModuleLoadData(&module, cubin);
    cuModuleGetFunction(&work, module, "work");
    cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    CHECK(cuCtxSynchronize());
    cuModuleUnload(module);
    CHECK(cuLinkDestroy(state));
    end();
    return success();
}
