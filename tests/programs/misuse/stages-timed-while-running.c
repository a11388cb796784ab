// The profiler of a network has a pair of events for each stage, and asks for their times as soon
// as all stages have been enqueued: the device is not ready. The control waits for the last event.
// https://github.com/dusty-nv/jetson-inference/issues/1821
// expect: event-elapsed-not-complete
// null-driver: CUTAPE_NULL_SCHEDULE=lazy
#include "program.h"

enum { STAGES = 3, VALUES = 1 << 22 };

struct profiler {
    CUevent begun[STAGES], ended[STAGES];
};

static void query(const struct profiler *profiler)
{
#ifndef VIOLATE
    CHECK(cuEventSynchronize(profiler->ended[STAGES - 1]));
#endif
    for (int stage = 0; stage < STAGES; stage++) {
        float milliseconds = 0;
        MISUSE(cuEventElapsedTime(&milliseconds, profiler->begun[stage], profiler->ended[stage]));
    }
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    struct profiler profiler;
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    uint32_t start = 1, count = VALUES;
    void *parameters[] = {&memory, &start, &count};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, VALUES * sizeof start));
    for (int stage = 0; stage < STAGES; stage++) {
        CHECK(cuEventCreate(&profiler.begun[stage], CU_EVENT_DEFAULT));
        CHECK(cuEventCreate(&profiler.ended[stage], CU_EVENT_DEFAULT));
    }
    launch(fill, 1, 1, stream, parameters);
    CHECK(cuStreamSynchronize(stream));
    for (int stage = 0; stage < STAGES; stage++) {
        CHECK(cuEventRecord(profiler.begun[stage], stream));
        launch(fill, 1, 1, stream, parameters);
        CHECK(cuEventRecord(profiler.ended[stage], stream));
    }
    query(&profiler);
    CHECK(cuStreamSynchronize(stream));
    for (int stage = 0; stage < STAGES; stage++) {
        CHECK(cuEventDestroy(profiler.begun[stage]));
        CHECK(cuEventDestroy(profiler.ended[stage]));
    }
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
