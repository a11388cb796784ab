// The time between a recorded and an unrecorded event is asked for; the control records both.
// expect: event-elapsed-invalid
#include "program.h"

int main(void)
{
    begin();
    CUevent start = NULL, stop = NULL;
    float milliseconds = 0;
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(start, NULL));
    CHECK(cuEventSynchronize(start));
#ifdef VIOLATE
    MISUSE(cuEventElapsedTime(&milliseconds, start, stop));
#else
    CHECK(cuEventRecord(stop, NULL));
    CHECK(cuEventSynchronize(stop));
    CHECK(cuEventElapsedTime(&milliseconds, start, stop));
#endif
    CHECK(cuEventDestroy(stop));
    CHECK(cuEventDestroy(start));
    end();
    return success();
}
