// A field is given a pointer into other memory, and a texture is made of it: only the size is
// checked for the alignment of textures, not the address. The control checks both.
// https://github.com/lattice/quda/pull/832
// expect: texture-descriptor-constraints
#include "program.h"

static int may_be_texture(CUdeviceptr address UNUSED, size_t bytes)
{
    int alignment = 0;
    CHECK(cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device));
#ifndef VIOLATE
    if (address % (size_t)alignment != 0)
        return 0;
#endif
    return bytes % (size_t)alignment == 0;
}

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CUtexObject texture = 0;
    const size_t bytes = 4096;
    CHECK(cuMemAlloc(&memory, 2 * bytes));
    CUdeviceptr field = memory + 48;
    if (may_be_texture(field, bytes)) {
        CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
        CUDA_TEXTURE_DESC sampling = {.flags = CU_TRSF_READ_AS_INTEGER};
        resource.res.linear.devPtr = field;
        resource.res.linear.format = CU_AD_FORMAT_FLOAT;
        resource.res.linear.numChannels = 4;
        resource.res.linear.sizeInBytes = bytes;
        MISUSE(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
    }
    if (texture)
        CHECK(cuTexObjectDestroy(texture));
    CHECK(cuMemFree(memory));
    end();
    return success();
}
