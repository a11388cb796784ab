/* Images made at run time: fat binaries around PTX and cubins, and cubins from the driver's own
 * linker. */
#ifndef CUTAPE_IMAGES_H
#define CUTAPE_IMAGES_H

#include "program.h"

enum { FATBIN_PTX = 1, FATBIN_ELF = 2 };

/* One image of a fat binary. `arch` is the compute capability as in sm_70: 70. */
struct fatbin_image {
    uint16_t kind;
    uint32_t arch;
    uint16_t major, minor; /* PTX: the .version; ELF: left 0 and 0 */
    const void *bytes;
    size_t size; /* PTX: with its NUL */
};

/* Uncompressed fat binary container: header (magic, version 1, size 16), then per image an entry
 * header and its bytes, padded to 8, laid out as the toolkit's `fatbinary --compress=false` does.
 * The caller frees it. */
static inline unsigned char *make_fatbin(const struct fatbin_image *images, size_t count,
                                         size_t *size)
{
    size_t total = 16;
    for (size_t i = 0; i < count; i++)
        total += (images[i].kind == FATBIN_PTX ? 80 : 64) + (images[i].size + 7) / 8 * 8;
    unsigned char *fatbin = calloc(1, total);
    EXPECT(fatbin != NULL);
    uint32_t magic = 0xBA55ED50;
    uint16_t version = 1, header_size = 16;
    uint64_t rest = total - 16;
    memcpy(fatbin, &magic, 4);
    memcpy(fatbin + 4, &version, 2);
    memcpy(fatbin + 6, &header_size, 2);
    memcpy(fatbin + 8, &rest, 8);
    unsigned char *entry = fatbin + 16;
    for (size_t i = 0; i < count; i++) {
        int ptx = images[i].kind == FATBIN_PTX;
        uint16_t entry_version = 0x0101;
        uint16_t minor = ptx ? images[i].minor : 8, major = ptx ? images[i].major : 1;
        uint32_t entry_size = ptx ? 80 : 64, options = ptx ? 64 : 0;
        uint64_t padded = (images[i].size + 7) / 8 * 8, flags = 0x11; /* 64-bit code, Linux */
        memcpy(entry, &images[i].kind, 2);
        memcpy(entry + 2, &entry_version, 2);
        memcpy(entry + 4, &entry_size, 4);
        memcpy(entry + 8, &padded, 8);
        memcpy(entry + 20, &options, 4);
        memcpy(entry + 24, &minor, 2);
        memcpy(entry + 26, &major, 2);
        memcpy(entry + 28, &images[i].arch, 4);
        memcpy(entry + 40, &flags, 8);
        if (ptx)
            entry[64] = 0x48; /* where an empty string of compiler options ends */
        memcpy(entry + entry_size, images[i].bytes, images[i].size);
        entry += entry_size + padded;
    }
    *size = total;
    return fatbin;
}

/* A fat binary with one PTX text for sm_70. The caller frees it. */
static inline unsigned char *make_ptx_fatbin(const char *ptx, size_t *size)
{
    struct fatbin_image image = {FATBIN_PTX, 70, 7, 0, ptx, strlen(ptx) + 1};
    return make_fatbin(&image, 1, size);
}

/* The cubin that the driver's linker makes from one or two PTX texts (`second` may be NULL) for the
 * current context's device; a copy, which the caller frees. */
static inline unsigned char *link_cubin(const char *first, const char *second, size_t *size)
{
    CUlinkState state = NULL;
    void *cubin = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)first, strlen(first) + 1,
                        "first", 0, NULL, NULL));
    if (second != NULL)
        CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)second, strlen(second) + 1,
                            "second", 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &cubin, size));
    EXPECT(cubin != NULL && *size > 0);
    unsigned char *copy = malloc(*size);
    EXPECT(copy != NULL);
    memcpy(copy, cubin, *size);
    CHECK(cuLinkDestroy(state));
    return copy;
}

/* The device's compute capability as in sm_90: 90. */
static inline uint32_t device_arch(void)
{
    int major = 0, minor = 0;
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    return (uint32_t)(major * 10 + minor);
}

#endif
