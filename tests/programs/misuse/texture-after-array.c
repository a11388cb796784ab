// A kernel gets a texture object whose array was destroyed; the control destroys the array last.
// The kernel does not read the texture.
// expect: texture-object-stale
#include "program.h"

/* A kernel with one parameter of eight bytes, which it ignores. */
static const char TAKES[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry takes(.param .u64 object)\n{\n    ret;\n}\n";

int main(void)
{
    begin();
    CUmodule module = load_ptx(TAKES);
    CUfunction takes = function_of(module, "takes");
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 1};
    CHECK(cuArrayCreate(&array, &shape));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CUtexObject texture = 0;
    CHECK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
    void *parameters[] = {&texture};
    launch(takes, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
#ifdef VIOLATE
    CHECK(cuArrayDestroy(array));
    launch(takes, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuTexObjectDestroy(texture));
#else
    launch(takes, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
    CHECK(cuTexObjectDestroy(texture));
    CHECK(cuArrayDestroy(array));
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
