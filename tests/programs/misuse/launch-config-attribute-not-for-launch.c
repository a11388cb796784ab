// The cooperative attribute is set on a stream; the control sets it on a launch.
// expect: launch-config-attribute-not-for-launch
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifdef VIOLATE
    CUstreamAttrValue value;
    memset(&value, 0, sizeof value);
    value.cooperative = 1;
    MISUSE(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    launch(nothing, 1, 32, stream, NULL);
#else
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config = configuration(1, 32, stream, &attribute, 1);
    CHECK(cuLaunchKernelEx(&config, nothing, NULL, NULL));
#endif
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
