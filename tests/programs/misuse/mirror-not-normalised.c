// A texture is to mirror at its borders, which it does only with normalised coordinates; the control
// normalises them. The report has wrap, whose value is that of a descriptor of zeros.
// https://github.com/NVIDIA/cuda-samples/issues/176
// expect: texture-descriptor-constraints
#include "program.h"

int main(void)
{
    begin();
    CUarray array = NULL;
    CUtexObject texture = 0;
    CUDA_ARRAY_DESCRIPTOR wanted = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1,
    };
    CHECK(cuArrayCreate(&array, &wanted));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_LINEAR};
    sampling.addressMode[0] = CU_TR_ADDRESS_MODE_MIRROR;
    sampling.addressMode[1] = CU_TR_ADDRESS_MODE_MIRROR;
#ifndef VIOLATE
    sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
#endif
    CHECK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
    CHECK(cuTexObjectDestroy(texture));
    CHECK(cuArrayDestroy(array));
    end();
    return success();
}
