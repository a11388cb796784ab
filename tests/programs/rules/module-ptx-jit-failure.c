// PTX newer than the driver is loaded; the control has a fitting cubin beside it in a fat binary.
// expect: module-ptx-jit-failure
#include "images.h"

int main(void)
{
    begin();
    static const char FUTURE[] =
        ".version 99.0\n.target sm_90\n.address_size 64\n.visible .entry later()\n{\n ret;\n}\n";
    CUmodule module = NULL;
#ifdef VIOLATE
    MISUSE(cuModuleLoadData(&module, FUTURE));
#else
    size_t cubin_size = 0, size = 0;
    unsigned char *cubin = link_cubin(PTX_FILL, NULL, &cubin_size);
    struct fatbin_image images[] = {
        {FATBIN_ELF, device_arch(), 0, 0, cubin, cubin_size},
        {FATBIN_PTX, 90, 99, 0, FUTURE, sizeof FUTURE},
    };
    unsigned char *fatbin = make_fatbin(images, 2, &size);
    CHECK(cuModuleLoadData(&module, fatbin));
    free(fatbin);
    free(cubin);
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
