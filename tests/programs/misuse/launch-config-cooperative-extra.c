// A cooperative launch by attribute with its parameters in extra; the control has them in
// kernelParams.
// expect: launch-config-cooperative-extra
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_MARK);
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    void *parameters[] = {&memory};
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config = configuration(1, 32, NULL, &attribute, 1);
    size_t size = sizeof memory;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
#ifdef VIOLATE
    (void)parameters;
    CHECK(cuLaunchKernelEx(&config, mark, NULL, extra));
#else
    (void)extra;
    CHECK(cuLaunchKernelEx(&config, mark, parameters, NULL));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
