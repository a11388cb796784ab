// A texture ends with the scope that it was made in, and its object with it, although the lookup
// that refers to it is evaluated only afterwards. In the control, the lookup holds a reference.
// https://github.com/mitsuba-renderer/drjit-core/pull/12
// expect: texture-object-stale
#include "program.h"

/* A kernel with one parameter of eight bytes, which it ignores. */
static const char LOOKUP[] = PTX_HEAD ".visible .entry lookup(.param .u64 texture)\n{\n ret;\n}\n";

struct texture {
    CUarray array;
    CUtexObject object;
    int references;
};

static void create(struct texture *texture)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1, .Height = 1, .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 1};
    CHECK(cuArrayCreate(&texture->array, &shape));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = texture->array;
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CHECK(cuTexObjectCreate(&texture->object, &resource, &sampling, NULL));
    texture->references = 1;
}

static void release(struct texture *texture)
{
    if (--texture->references > 0)
        return;
    CHECK(cuTexObjectDestroy(texture->object));
    CHECK(cuArrayDestroy(texture->array));
}

static CUtexObject look_up(struct texture *texture)
{
#ifndef VIOLATE
    texture->references++;
#endif
    return texture->object;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(LOOKUP);
    struct texture texture;
    create(&texture);
    CUtexObject result = look_up(&texture);
    release(&texture);
    void *parameters[] = {&result};
    launch(function_of(module, "lookup"), 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
#ifndef VIOLATE
    release(&texture);
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
