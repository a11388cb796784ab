// Each scatter and each gather makes temporary events to order the streams of several devices, and
// never destroys them. The control destroys them once the streams have waited.
// https://github.com/zama-ai/tfhe-rs/pull/3186
// expect: context-objects-left-behind
#include "program.h"

enum { ROUNDS = 100, PART = 1024 };

static void order(CUstream first, CUstream second)
{
    CUevent temporary = NULL;
    CHECK(cuEventCreate(&temporary, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(temporary, first));
    CHECK(cuStreamWaitEvent(second, temporary, 0));
#ifndef VIOLATE
    CHECK(cuEventDestroy(temporary));
#endif
}

static void scatter_and_gather(CUstream origin, CUstream worker, CUdeviceptr all, CUdeviceptr part)
{
    order(origin, worker);
    CHECK(cuMemcpyDtoDAsync(part, all, PART, worker));
    CHECK(cuMemsetD8Async(part, 1, PART, worker));
    CHECK(cuMemcpyDtoDAsync(all, part, PART, worker));
    order(worker, origin);
}

int main(void)
{
    begin();
    CUstream origin = NULL, worker = NULL;
    CUdeviceptr all = 0, part = 0;
    CHECK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&worker, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&all, PART));
    CHECK(cuMemAlloc(&part, PART));
    CHECK(cuMemsetD8Async(all, 0, PART, origin));
    for (int i = 0; i < ROUNDS; i++)
        scatter_and_gather(origin, worker, all, part);
    CHECK(cuStreamSynchronize(origin));
    CHECK(cuMemFree(part));
    CHECK(cuMemFree(all));
    CHECK(cuStreamDestroy(worker));
    CHECK(cuStreamDestroy(origin));
    end();
    return success();
}
