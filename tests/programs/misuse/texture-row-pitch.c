// A texture over an image whose rows follow each other, 100 floats each; the control lets
// the driver choose the distance of the rows. Nobody looks at the result.
// https://github.com/kornia/kornia-rs/issues/1000
// expect: texture-descriptor-constraints
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr image = 0;
    size_t pitch = 0;
    const size_t width = 100, height = 8;
#ifdef VIOLATE
    pitch = width * sizeof(float);
    CHECK(cuMemAlloc(&image, pitch * height));
#else
    CHECK(cuMemAllocPitch(&image, &pitch, width * sizeof(float), height, 4));
#endif
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    resource.res.pitch2D.devPtr = image;
    resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = width;
    resource.res.pitch2D.height = height;
    resource.res.pitch2D.pitchInBytes = pitch;
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_LINEAR};
    CUtexObject texture = 0;
    MISUSE(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
    if (texture)
        CHECK(cuTexObjectDestroy(texture));
    CHECK(cuMemFree(image));
    end();
    return success();
}
