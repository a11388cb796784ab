// cuModuleLoadFatBinary is given bare PTX; the control gives fat binaries to it and to
// cuModuleLoadData.
// expect: module-fatbinary-wrong-kind
#include "images.h"

int main(void)
{
    begin();
    CUmodule module = NULL;
#ifdef VIOLATE
    CUresult result = cuModuleLoadFatBinary(&module, PTX_FILL);
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    size_t size = 0;
    unsigned char *fatbin = make_ptx_fatbin(PTX_FILL, &size);
    CHECK(cuModuleLoadFatBinary(&module, fatbin));
    CHECK(cuModuleUnload(module));
    CHECK(cuModuleLoadData(&module, fatbin));
    CHECK(cuModuleUnload(module));
    free(fatbin);
#endif
    end();
    return success();
}
