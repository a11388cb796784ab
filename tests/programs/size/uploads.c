/* Copies a file to the device from mappings of it, and bytes that are equal from other memory.
 *
 *   uploads FILE CHANGE...
 *
 * Between the copies it changes the mapping (`memory`), the file (`file`), or nothing. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "program.h"

static void copy(const unsigned char *from, size_t bytes)
{
    CUdeviceptr target = 0;
    CHECK(cuMemAlloc(&target, bytes));
    CHECK(cuMemcpyHtoD(target, from, bytes));
    unsigned char *back = malloc(bytes);
    EXPECT(back != NULL);
    CHECK(cuMemcpyDtoH(back, target, bytes));
    EXPECT(memcmp(back, from, bytes) == 0);
    unsigned long long sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += back[i] * (i % 251 + 1);
    show("sum", sum);
    free(back);
    CHECK(cuMemFree(target));
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 2);
    int file = open(argv[1], O_RDWR);
    struct stat status;
    EXPECT(file >= 0 && fstat(file, &status) == 0);
    size_t bytes = (size_t)status.st_size;
    unsigned char *private = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    unsigned char *shared = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    EXPECT(private != MAP_FAILED && shared != MAP_FAILED);
    begin();
    copy(private, bytes);
    copy(shared, bytes);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "memory") == 0)
            private[bytes / 2] ^= 0xff;
        else if (strcmp(argv[i], "file") == 0)
            EXPECT(pwrite(file, "changed", 7, (off_t)bytes / 3) == 7);
        copy(private, bytes);
        copy(shared, bytes);
    }
    unsigned char *heap = malloc(bytes);
    EXPECT(heap != NULL);
    memcpy(heap, shared, bytes);
    copy(heap, bytes);
    free(heap);
    munmap(private, bytes);
    munmap(shared, bytes);
    close(file);
    end();
    return success();
}
