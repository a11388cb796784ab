// A stream of higher priority waits until a kernel has begun; the control waits for its end.
// expect: launch-config-completion-event-inversion
// needs: a GPU with programmatic launches (sm_90)
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUstream urgent = NULL;
    int least = 0, greatest = 0;
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
    CUevent event = NULL;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    attribute.value.launchCompletionEvent.event = event;
    CUlaunchConfig config = configuration(1, 32, stream, &attribute, 1);
    CHECK(cuLaunchKernelEx(&config, nothing, NULL, NULL));
#ifndef VIOLATE
    CHECK(cuEventRecord(event, stream));
#endif
    CHECK(cuStreamWaitEvent(urgent, event, 0));
    launch(nothing, 1, 32, urgent, NULL);
    CHECK(cuCtxSynchronize());
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(urgent));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
