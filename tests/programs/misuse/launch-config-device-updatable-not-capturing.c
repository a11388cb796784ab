// A launch outside a capture asks for a node that the device may update; the control does not.
// expect: launch-config-device-updatable-not-capturing
// replay-skips: cuLaunchKernelEx
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
#ifdef VIOLATE
    attribute.value.deviceUpdatableKernelNode.deviceUpdatable = 1;
#endif
    CUlaunchConfig config = configuration(1, 32, stream, &attribute, 1);
    MISUSE(cuLaunchKernelEx(&config, nothing, NULL, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
