// An event is created in every round and never destroyed; the control creates as many before its
// rounds, and uses them in turn.
// expect: context-objects-left-behind
#include "program.h"

enum { ROUNDS = 200 };

int main(void)
{
    begin();
    static CUevent events[ROUNDS];
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifndef VIOLATE
    for (int round = 0; round < ROUNDS; round++)
        CHECK(cuEventCreate(&events[round], CU_EVENT_DISABLE_TIMING));
#endif
    for (int round = 0; round < ROUNDS; round++) {
#ifdef VIOLATE
        CHECK(cuEventCreate(&events[round], CU_EVENT_DISABLE_TIMING));
#endif
        CHECK(cuEventRecord(events[round], stream));
        CHECK(cuEventSynchronize(events[round]));
    }
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
