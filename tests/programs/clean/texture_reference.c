// may: errors-deprecated-api
/* A texture reference that the program creates (deprecated): settings are read back. */
#include "program.h"

enum { WIDTH = 32, HEIGHT = 4 };

int main(void)
{
    begin();
    CUtexref reference = NULL;
    if (!SUPPORTED(cuTexRefCreate(&reference))) {
        end();
        return success();
    }
    CUarray array = NULL, found = NULL;
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 1};
    CHECK(cuArrayCreate(&array, &shape));
    CHECK(cuTexRefSetFormat(reference, CU_AD_FORMAT_FLOAT, 1));
    CHECK(cuTexRefSetAddressMode(reference, 0, CU_TR_ADDRESS_MODE_CLAMP));
    CHECK(cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
    CHECK(cuTexRefSetFlags(reference, CU_TRSF_NORMALIZED_COORDINATES));
    CHECK(cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
    CHECK(cuTexRefGetArray(&found, reference));
    EXPECT(found == array);
    CUarray_format format = 0;
    CUaddress_mode address_mode = 0;
    CUfilter_mode filter_mode = 0;
    int channels = 0;
    unsigned flags = 0;
    CHECK(cuTexRefGetFormat(&format, &channels, reference));
    CHECK(cuTexRefGetAddressMode(&address_mode, reference, 0));
    CHECK(cuTexRefGetFilterMode(&filter_mode, reference));
    CHECK(cuTexRefGetFlags(&flags, reference));
    EXPECT(format == CU_AD_FORMAT_FLOAT && channels == 1);
    EXPECT(address_mode == CU_TR_ADDRESS_MODE_CLAMP && filter_mode == CU_TR_FILTER_MODE_LINEAR);
    EXPECT(flags & CU_TRSF_NORMALIZED_COORDINATES);
    printf("an array behind the reference\n");

    CUdeviceptr memory = 0, address = 0;
    size_t offset = 1;
    CHECK(cuMemAlloc(&memory, WIDTH * 4));
    CHECK(cuTexRefSetAddress(&offset, reference, memory, WIDTH * 4));
    CHECK(cuTexRefGetAddress(&address, reference));
    EXPECT(address == memory && offset == 0);
    printf("memory behind the reference\n");

    CHECK(cuTexRefDestroy(reference));
    CHECK(cuMemFree(memory));
    CHECK(cuArrayDestroy(array));
    end();
    return success();
}
