// The destructor of a point cloud lets the free wait for the cloud's event, which its constructor
// creates and no call records; the control records it after the cloud has been filled.
// https://github.com/autowarefoundation/cuda_blackboard/pull/22
// expect: event-wait-unrecorded memory-pool-access-unordered
#include "program.h"

static CUstream producer, releaser;

struct cloud {
    CUdeviceptr points;
    CUevent ready;
};

static void construct(struct cloud *cloud)
{
    CHECK(cuEventCreate(&cloud->ready, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAllocAsync(&cloud->points, 4096, producer));
    CHECK(cuMemsetD8Async(cloud->points, 0, 4096, producer));
#ifndef VIOLATE
    CHECK(cuEventRecord(cloud->ready, producer));
#endif
}

static void destroy(struct cloud *cloud)
{
    CHECK(cuStreamWaitEvent(releaser, cloud->ready, 0));
    CHECK(cuMemFreeAsync(cloud->points, releaser));
    CHECK(cuEventDestroy(cloud->ready));
}

int main(void)
{
    begin();
    CHECK(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&releaser, CU_STREAM_NON_BLOCKING));
    struct cloud cloud = {0};
    construct(&cloud);
    destroy(&cloud);
    CHECK(cuStreamSynchronize(producer));
    CHECK(cuStreamSynchronize(releaser));
    CHECK(cuStreamDestroy(releaser));
    CHECK(cuStreamDestroy(producer));
    end();
    return success();
}
