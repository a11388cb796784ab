// The cubin of a link is loaded after cuLinkDestroy; the control loads a copy of it.
// expect: link-cubin-after-destroy
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    void *cubin = NULL;
    size_t size = 0;
    CUmodule module = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)PTX_FILL, sizeof PTX_FILL,
                        "fill", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, &size));
    unsigned char *copy = malloc(size);
    EXPECT(copy != NULL);
    memcpy(copy, cubin, size);
    CHECK(cuLinkDestroy(state));
#ifdef VIOLATE
    /* succeeds while the memory is not reused */
    CUresult result = cuModuleLoadData(&module, cubin);
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    CHECK(cuModuleLoadData(&module, copy));
    CHECK(cuModuleUnload(module));
#endif
    free(copy);
    end();
    return success();
}
