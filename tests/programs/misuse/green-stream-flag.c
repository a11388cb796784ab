// A stream of a green context is created as a blocking one; the control passes the flag.
// expect: context-green-misuse
#include "program.h"

int main(void)
{
    begin();
    CUdevResource all, part;
    CUdevResourceDesc descriptor = NULL;
    CUgreenCtx green = NULL;
    CUstream stream = NULL;
    unsigned groups = 1;
    CHECK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 8));
    CHECK(cuDevResourceGenerateDesc(&descriptor, &part, 1));
    CHECK(cuGreenCtxCreate(&green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM));
#ifdef VIOLATE
    CUresult result = cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0);
#else
    CUresult result = cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0);
    CHECK(result);
#endif
    if (result == CUDA_SUCCESS)
        CHECK(cuStreamDestroy(stream));
    CHECK(cuGreenCtxDestroy(green));
    end();
    return success();
}
