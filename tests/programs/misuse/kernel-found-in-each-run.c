// Each run of a benchmark looks its kernel up in the module by the mangled name; the control keeps
// the function.
// https://github.com/eyalroz/gpu-kernel-runner/issues/100
// expect: performance-symbol-lookup-per-launch
#include "program.h"

static const char mangled[] = "_Z4workv";

static const char kernel[] = PTX_HEAD ".visible .entry _Z4workv()\n" PTX_EMPTY_BODY;

struct runner {
    CUmodule module;
    CUfunction function;
};

static void run(struct runner *runner)
{
#ifdef VIOLATE
    runner->function = function_of(runner->module, mangled);
#else
    if (!runner->function)
        runner->function = function_of(runner->module, mangled);
#endif
    launch(runner->function, 1, 32, NULL, NULL);
}

int main(void)
{
    begin();
    struct runner runner = {.module = load_ptx(kernel)};
    for (int i = 0; i < 200; i++)
        run(&runner);
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(runner.module));
    end();
    return success();
}
