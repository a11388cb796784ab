/* Texture and surface objects over an array, a mipmapped array, linear and pitched memory; their
 * descriptions are read back. */
#include "program.h"

enum { WIDTH = 64, HEIGHT = 8 };

static CUDA_TEXTURE_DESC sampler(unsigned flags)
{
    CUDA_TEXTURE_DESC desc;
    memset(&desc, 0, sizeof desc);
    desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = CU_TR_ADDRESS_MODE_CLAMP;
    desc.filterMode = CU_TR_FILTER_MODE_POINT;
    desc.flags = flags;
    return desc;
}

int main(void)
{
    begin();
    CUarray array = NULL;
    CUmipmappedArray levels = NULL;
    CUdeviceptr line = 0, plane = 0;
    size_t pitch = 0;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = WIDTH, .Height = HEIGHT, .Depth = 0,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                     .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    CHECK(cuArray3DCreate(&array, &shape));
    CHECK(cuMipmappedArrayCreate(&levels, &shape, 2));
    CHECK(cuMemAlloc(&line, WIDTH * 4));
    CHECK(cuMemAllocPitch(&plane, &pitch, WIDTH * 4, HEIGHT, 4));

    CUDA_RESOURCE_DESC of_array = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    CUDA_RESOURCE_DESC of_levels = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                                    .res.mipmap.hMipmappedArray = levels};
    CUDA_RESOURCE_DESC of_line = {
        .resType = CU_RESOURCE_TYPE_LINEAR,
        .res.linear = {.devPtr = line, .format = CU_AD_FORMAT_UNSIGNED_INT32, .numChannels = 1,
                       .sizeInBytes = WIDTH * 4},
    };
    CUDA_RESOURCE_DESC of_plane = {
        .resType = CU_RESOURCE_TYPE_PITCH2D,
        .res.pitch2D = {.devPtr = plane, .format = CU_AD_FORMAT_UNSIGNED_INT32, .numChannels = 1,
                        .width = WIDTH,
                        .height = HEIGHT, .pitchInBytes = pitch},
    };
    CUDA_RESOURCE_DESC *resources[] = {&of_array, &of_levels, &of_line, &of_plane};
    CUtexObject textures[4] = {0};
    for (int i = 0; i < 4; i++) {
        CUDA_TEXTURE_DESC desc = sampler(
            i == 1 ? CU_TRSF_NORMALIZED_COORDINATES : CU_TRSF_READ_AS_INTEGER);
        CHECK(cuTexObjectCreate(&textures[i], resources[i], &desc, NULL));
        CUDA_RESOURCE_DESC found;
        CUDA_TEXTURE_DESC found_sampler;
        CHECK(cuTexObjectGetResourceDesc(&found, textures[i]));
        CHECK(cuTexObjectGetTextureDesc(&found_sampler, textures[i]));
        EXPECT(found.resType == resources[i]->resType);
        EXPECT(found_sampler.flags == desc.flags && found_sampler.filterMode == desc.filterMode);
        if (i == 0)
            EXPECT(found.res.array.hArray == array);
        if (i == 2)
            EXPECT(found.res.linear.devPtr == line && found.res.linear.sizeInBytes == WIDTH * 4);
        if (i == 3)
            EXPECT(found.res.pitch2D.devPtr == plane && found.res.pitch2D.width == WIDTH);
        show("texture of kind", found.resType);
    }

    CUDA_RESOURCE_VIEW_DESC view;
    memset(&view, 0, sizeof view);
    view.format = CU_RES_VIEW_FORMAT_UINT_1X32;
    view.width = WIDTH;
    view.height = HEIGHT;
    CUDA_TEXTURE_DESC desc = sampler(CU_TRSF_READ_AS_INTEGER);
    CUtexObject seen = 0;
    CHECK(cuTexObjectCreate(&seen, &of_array, &desc, &view));
    CUDA_RESOURCE_VIEW_DESC found_view;
    CHECK(cuTexObjectGetResourceViewDesc(&found_view, seen));
    EXPECT(found_view.format == view.format && found_view.width == WIDTH);
    CHECK(cuTexObjectDestroy(seen));

    CUsurfObject surface = 0;
    CUDA_RESOURCE_DESC found;
    CHECK(cuSurfObjectCreate(&surface, &of_array));
    CHECK(cuSurfObjectGetResourceDesc(&found, surface));
    EXPECT(found.resType == CU_RESOURCE_TYPE_ARRAY && found.res.array.hArray == array);
    CHECK(cuSurfObjectDestroy(surface));
    printf("a surface over the array\n");

    for (int i = 0; i < 4; i++)
        CHECK(cuTexObjectDestroy(textures[i]));
    CHECK(cuMemFree(plane));
    CHECK(cuMemFree(line));
    CHECK(cuMipmappedArrayDestroy(levels));
    CHECK(cuArrayDestroy(array));
    end();
    return success();
}
