// The host waits for a programmatic event; the control records an ordinary one behind the launch.
// expect: launch-config-event-host-wait
// needs: a GPU with programmatic launches (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUevent event = NULL;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    attribute.value.programmaticEvent.event = event;
    CUlaunchConfig config = configuration(1, 32, stream, &attribute, 1);
    CHECK(cuLaunchKernelEx(&config, nothing, NULL, NULL));
#ifndef VIOLATE
    CHECK(cuEventRecord(event, stream));
#endif
    CHECK(cuEventSynchronize(event));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
