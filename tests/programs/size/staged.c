/* Copies parts of files to the device through page-locked memory, one part at once, as loaders of
 * models do.
 *
 *   staged READ FILE PART... [FILE PART...]...
 *
 * READ is `mapped`, where a file is mapped and closed, or `open`, where it stays open; until the next
 * file. FILE begins with a slash. PART is OFFSET:LENGTH, with `!` at its end if a byte in the middle
 * is changed. The last one is read back. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "program.h"

static int file = -1;
static char *mapping;
static size_t bytes;

static void leave_file(void)
{
    if (mapping != NULL)
        EXPECT(munmap(mapping, bytes) == 0);
    else if (file >= 0)
        EXPECT(close(file) == 0);
}

static void open_file(const char *path, int is_mapped)
{
    leave_file();
    struct stat status;
    file = open(path, O_RDONLY);
    EXPECT(file >= 0 && fstat(file, &status) == 0);
    bytes = (size_t)status.st_size;
    if (!is_mapped)
        return;
    mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    EXPECT(mapping != MAP_FAILED && close(file) == 0);
}

static void upload(const char *part, int is_read_back)
{
    char *end;
    size_t offset = strtoull(part, &end, 10), length = strtoull(end + 1, &end, 10);
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
    if (is_read_back) {
        char *back = malloc(length);
        EXPECT(back != NULL);
        CHECK(cuMemcpyDtoH(back, target, length));
        EXPECT(memcmp(back, staging, length) == 0);
        free(back);
    }
    CHECK(cuMemFree(target));
    CHECK(cuMemFreeHost(staging));
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 4 && argv[2][0] == '/');
    int is_mapped = strcmp(argv[1], "mapped") == 0;
    begin();
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] == '/')
            open_file(argv[i], is_mapped);
        else
            upload(argv[i], i == argc - 1);
    }
    leave_file();
    end();
    return success();
}
