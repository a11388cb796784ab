/* A green context on part of the device: resources split, described, used for a stream and an
 * event. */
#include "program.h"

int main(void)
{
    begin();
    CUdevResource all, parts[1], rest;
    memset(&all, 0, sizeof all);
    memset(&rest, 0, sizeof rest);
    memset(parts, 0, sizeof parts);
    if (!SUPPORTED(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM))) {
        end();
        return success();
    }
    EXPECT(all.type == CU_DEV_RESOURCE_TYPE_SM && all.sm.smCount > 0);
    show("multiprocessors", all.sm.smCount);
    unsigned groups = 0;
    CHECK(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, 8));
    EXPECT(groups >= 1);
    show("groups of eight", groups);
    groups = 1;
    CHECK(cuDevSmResourceSplitByCount(parts, &groups, &all, &rest, 0, 8));
    EXPECT(groups == 1 && parts[0].sm.smCount >= 8);
    printf("%u in the part, %u left\n", parts[0].sm.smCount, rest.sm.smCount);

    CUdevResourceDesc description = NULL;
    CUgreenCtx green = NULL, found = NULL;
    CUcontext inside = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdevResource mine;
    CHECK(cuDevResourceGenerateDesc(&description, parts, 1));
    CHECK(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    memset(&mine, 0, sizeof mine);
    CHECK(cuGreenCtxGetDevResource(green, &mine, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(mine.sm.smCount == parts[0].sm.smCount);
    CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cuStreamGetGreenCtx(stream, &found));
    EXPECT(found == green);
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuGreenCtxRecordEvent(green, event));
    CHECK(cuGreenCtxWaitEvent(green, event));

    CHECK(cuCtxFromGreenCtx(&inside, green));
    CHECK(cuCtxPushCurrent(inside));
    memset(&mine, 0, sizeof mine);
    CHECK(cuCtxGetDevResource(inside, &mine, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(mine.sm.smCount == parts[0].sm.smCount);
    CUdeviceptr memory = 0;
    uint32_t value = 0;
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemsetD32Async(memory, 9, 1, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
    show("value", value);
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxPopCurrent(NULL));
    CHECK(cuEventDestroy(event));
    CHECK(cuGreenCtxDestroy(green));
    end();
    return success();
}
