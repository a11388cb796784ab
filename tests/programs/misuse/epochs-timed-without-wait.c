// A training loop is timed with two events. The loss of each epoch is read back, but nothing waits
// for the evaluation behind the last one before the elapsed time is asked for; the control
// synchronises the event first.
// https://github.com/pytorch/tutorials/pull/3165
// expect: event-elapsed-not-complete
// null-driver: CUTAPE_NULL_SCHEDULE=lazy
#include "program.h"

enum { EPOCHS = 2, VALUES = 1 << 22 };

static CUfunction step;
static CUdeviceptr weights;

static void run(CUstream stream)
{
    uint32_t start = 1, count = VALUES;
    void *parameters[] = {&weights, &start, &count};
    launch(step, 1, 1, stream, parameters);
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    step = function_of(module, "fill");
    CUstream stream = NULL;
    CUevent begun = NULL, ended = NULL;
    void *loss = NULL;
    float milliseconds = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&begun, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&ended, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&weights, VALUES * sizeof(uint32_t)));
    CHECK(cuMemAllocHost(&loss, sizeof(uint32_t)));
    run(stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventRecord(begun, stream));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        run(stream);
        CHECK(cuMemcpyDtoHAsync(loss, weights, sizeof(uint32_t), stream));
        CHECK(cuStreamSynchronize(stream));
        run(stream);
    }
    CHECK(cuEventRecord(ended, stream));
#ifndef VIOLATE
    CHECK(cuEventSynchronize(ended));
#endif
    MISUSE(cuEventElapsedTime(&milliseconds, begun, ended));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFreeHost(loss));
    CHECK(cuMemFree(weights));
    CHECK(cuEventDestroy(ended));
    CHECK(cuEventDestroy(begun));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
