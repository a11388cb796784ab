// A timer keeps its two events in a struct whose constructor makes them without timing, and asks
// for their distance; the control's constructor makes events with timing.
// https://github.com/meta-pytorch/torchcomms/pull/2270
// expect: event-elapsed-invalid
#include "program.h"

#ifdef VIOLATE
enum { FLAGS = CU_EVENT_DISABLE_TIMING };
#else
enum { FLAGS = CU_EVENT_DEFAULT };
#endif

struct timer {
    CUevent start, stop;
};

static void construct(struct timer *timer)
{
    CHECK(cuEventCreate(&timer->start, FLAGS));
    CHECK(cuEventCreate(&timer->stop, FLAGS));
}

static float elapsed(const struct timer *timer)
{
    float milliseconds = 0;
    CHECK(cuEventSynchronize(timer->stop));
    MISUSE(cuEventElapsedTime(&milliseconds, timer->start, timer->stop));
    return milliseconds;
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    struct timer timer = {0};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, 4096));
    construct(&timer);
    for (int step = 0; step < 3; step++) {
        CHECK(cuEventRecord(timer.start, stream));
        CHECK(cuMemsetD8Async(memory, (unsigned char)step, 4096, stream));
        CHECK(cuEventRecord(timer.stop, stream));
        EXPECT(elapsed(&timer) >= 0);
    }
    CHECK(cuEventDestroy(timer.start));
    CHECK(cuEventDestroy(timer.stop));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
