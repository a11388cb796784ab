/* Copies parts of a file to the device through page-locked memory, one part at once, as loaders of
 * models do.
 *
 *   staged FILE READ PART...
 *
 * READ is `mapped`, where the file is mapped and closed, or `open`, where it stays open. PART is
 * OFFSET:LENGTH, with `!` at its end if a byte in the middle is changed. The last one is read back. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "program.h"

int main(int argc, char **argv)
{
    EXPECT(argc >= 4);
    int file = open(argv[1], O_RDONLY);
    struct stat status;
    EXPECT(file >= 0 && fstat(file, &status) == 0);
    size_t bytes = (size_t)status.st_size;
    const char *mapping = NULL;
    if (strcmp(argv[2], "mapped") == 0) {
        mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
        EXPECT(mapping != MAP_FAILED && close(file) == 0);
    }
    begin();
    for (int i = 3; i < argc; i++) {
        char *end;
        size_t offset = strtoull(argv[i], &end, 10), length = strtoull(end + 1, &end, 10);
        EXPECT(length > 0 && offset + length <= bytes);
        void *staging;
        CUdeviceptr target;
        CHECK(cuMemAllocHost(&staging, length));
        CHECK(cuMemAlloc(&target, length));
        if (mapping != NULL)
            memcpy(staging, mapping + offset, length);
        else
            EXPECT(pread(file, staging, length, (off_t)offset) == (ssize_t)length);
        if (*end == '!')
            ((char *)staging)[length / 2] ^= 1;
        CHECK(cuMemcpyHtoD(target, staging, length));
        if (i == argc - 1) {
            char *back = malloc(length);
            EXPECT(back != NULL);
            CHECK(cuMemcpyDtoH(back, target, length));
            EXPECT(memcmp(back, staging, length) == 0);
            free(back);
        }
        CHECK(cuMemFree(target));
        CHECK(cuMemFreeHost(staging));
    }
    end();
    return success();
}
