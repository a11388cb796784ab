// An event for several processes is created with times; the control disables them.
// expect: event-flags-misused
#include "program.h"

int main(void)
{
    begin();
    CUevent event = NULL;
#ifdef VIOLATE
    EXPECT(cuEventCreate(&event, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
#else
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventDestroy(event));
#endif
    end();
    return success();
}
