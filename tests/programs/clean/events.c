/* Events: recorded, queried, waited for, elapsed time between two; destroyed while pending. */
// may: performance-lazy-load-in-hot-path
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUstream stream = NULL;
    CUevent start = NULL, stop = NULL, untimed = NULL, pending = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&stop, CU_EVENT_BLOCKING_SYNC));
    CHECK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&pending, CU_EVENT_DISABLE_TIMING));

    CHECK(cuEventRecord(start, stream));
    for (int i = 0; i < 10; i++)
        launch(nothing, 1, 32, stream, NULL);
    CHECK(cuEventRecord(stop, stream));
    CHECK(cuEventSynchronize(stop));
    CHECK(cuEventQuery(stop));
    CHECK(cuEventQuery(start));
    float milliseconds = -1;
    CHECK(cuEventElapsedTime(&milliseconds, start, stop));
    EXPECT(milliseconds >= 0 && milliseconds < 60000);
    printf("elapsed time is sensible\n");

    CHECK(cuEventRecordWithFlags(untimed, stream, CU_EVENT_RECORD_DEFAULT));
    CHECK(cuStreamWaitEvent(NULL, untimed, 0));
    CHECK(cuEventSynchronize(untimed));
    CUresult result = CUDA_ERROR_NOT_READY;
    CHECK(cuEventRecord(untimed, stream)); /* recorded again */
    while ((result = cuEventQuery(untimed)) == CUDA_ERROR_NOT_READY)
        usleep(100);
    CHECK(result);

    launch(nothing, 1, 32, stream, NULL);
    CHECK(cuEventRecord(pending, stream));
    CHECK(cuEventDestroy(pending)); /* allowed while pending */
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventDestroy(untimed));
    CHECK(cuEventDestroy(stop));
    CHECK(cuEventDestroy(start));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
