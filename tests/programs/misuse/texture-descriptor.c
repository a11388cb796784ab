// A texture over linear memory that is not aligned; the control begins with the allocation.
// expect: texture-descriptor-constraints
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    resource.res.linear.devPtr = memory;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 1024;
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CUtexObject texture = 0;
#ifdef VIOLATE
    resource.res.linear.devPtr = memory + 4;
    MISUSE(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
#else
    CHECK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
    CHECK(cuTexObjectDestroy(texture));
#endif
    CHECK(cuMemFree(memory));
    end();
    return success();
}
