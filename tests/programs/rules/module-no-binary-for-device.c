// A cubin for another device is loaded; the control has PTX of a lower architecture beside it.
// expect: module-no-binary-for-device
// needs: a device that is not of compute capability 7.5
#include "cubins.h"
#include "images.h"

int main(void)
{
    begin();
    CUmodule module = NULL;
    EXPECT(device_arch() != 75);
#ifdef VIOLATE
    MISUSE(cuModuleLoadData(&module, CUBIN_SM75));
#else
    struct fatbin_image images[] = {
        {FATBIN_ELF, 75, 0, 0, CUBIN_SM75, sizeof CUBIN_SM75},
        {FATBIN_PTX, 70, 7, 0, PTX_FILL, sizeof PTX_FILL},
    };
    size_t size = 0;
    unsigned char *fatbin = make_fatbin(images, 2, &size);
    CHECK(cuModuleLoadData(&module, fatbin));
    free(fatbin);
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
