/* A fat binary made by hand: one PTX text; PTX beside a cubin for another device; PTX that is too
 * new beside a fitting cubin. */
#include "cubins.h"
#include "images.h"

static void run(CUmodule module, const char *label)
{
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr memory = 0;
    uint32_t value = 1;
    CHECK(cuMemAlloc(&memory, sizeof value));
    CHECK(cuMemcpyHtoD(memory, &value, sizeof value));
    void *parameters[] = {&memory};
    launch(mark, 1, 1, NULL, parameters);
    CHECK(cuMemcpyDtoH(&value, memory, sizeof value));
    EXPECT_KERNEL(value == 42);
    show(label, value);
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
}

int main(void)
{
    begin();
    size_t size = 0;
    CUmodule module = NULL;
    unsigned char *fatbin = make_ptx_fatbin(PTX_MARK, &size);
    CHECK(cuModuleLoadData(&module, fatbin));
    run(module, "by cuModuleLoadData");
    CHECK(cuModuleLoadFatBinary(&module, fatbin));
    free(fatbin);
    run(module, "by cuModuleLoadFatBinary");

    size_t cubin_size = 0;
    unsigned char *cubin = link_cubin(PTX_MARK, NULL, &cubin_size);
    struct fatbin_image with_cubin[] = {
        {FATBIN_PTX, 70, 7, 0, PTX_MARK, sizeof PTX_MARK},
        {FATBIN_ELF, device_arch(), 0, 0, cubin, cubin_size},
    };
    fatbin = make_fatbin(with_cubin, 2, &size);
    CHECK(cuModuleLoadData(&module, fatbin));
    free(fatbin);
    free(cubin);
    run(module, "PTX and a fitting cubin");

    if (device_arch() != 75) {
        struct fatbin_image with_stranger[] = {
            {FATBIN_ELF, 75, 0, 0, CUBIN_SM75, sizeof CUBIN_SM75},
            {FATBIN_PTX, 70, 7, 0, PTX_MARK, sizeof PTX_MARK},
        };
        fatbin = make_fatbin(with_stranger, 2, &size);
        CHECK(cuModuleLoadData(&module, fatbin));
        free(fatbin);
        run(module, "PTX and a cubin for another device");
    }
    end();
    return success();
}
