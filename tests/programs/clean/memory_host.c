/* Pinned host memory: allocated, mapped, registered; seen by copies and by a kernel. */
#include "program.h"

#include <sys/mman.h>

enum { COUNT = 1000, BYTES = COUNT * 4, REGISTERED = 64 << 10 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    uint32_t *pinned = NULL, *mapped = NULL;
    unsigned flags = 0;
    CHECK(cuMemAllocHost((void **)&pinned, BYTES));
    CHECK(cuMemHostAlloc((void **)&mapped, BYTES,
                         CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemHostGetFlags(&flags, mapped));
    printf("mapped memory has the flag: %s\n", flags & CU_MEMHOSTALLOC_DEVICEMAP ? "yes" : "no");

    CUdeviceptr view = 0, memory = 0;
    CHECK(cuMemHostGetDevicePointer(&view, mapped, 0));
    memset(mapped, 0, BYTES);
    uint32_t start = 100, count = COUNT;
    void *parameters[] = {&view, &start, &count};
    launch(fill, 4, 128, NULL, parameters);
    CHECK(cuCtxSynchronize());
    show_u32("written by the kernel through the mapping", mapped, COUNT);
    EXPECT_KERNEL(mapped[0] == 100 && mapped[COUNT - 1] == 100 + COUNT - 1);

    for (uint32_t i = 0; i < COUNT; i++)
        pinned[i] = i * i;
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemcpyHtoDAsync(memory, pinned, BYTES, NULL));
    CHECK(cuStreamSynchronize(NULL));
    memset(pinned, 0, BYTES);
    CHECK(cuMemcpyDtoHAsync(pinned, memory, BYTES, NULL));
    CHECK(cuStreamSynchronize(NULL));
    EXPECT(pinned[COUNT - 1] == (COUNT - 1) * (COUNT - 1));
    show_u32("through pinned memory", pinned, COUNT);

    unsigned char *plain = mmap(NULL, REGISTERED, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(plain != MAP_FAILED);
    memset(plain, 9, REGISTERED);
    CHECK(cuMemHostRegister(plain, REGISTERED,
                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&view, plain, 0));
    CHECK(cuMemcpyHtoDAsync(memory, plain, BYTES, NULL));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuMemHostUnregister(plain));
    EXPECT(munmap(plain, REGISTERED) == 0);
    uint32_t first = 0;
    CHECK(cuMemcpyDtoH(&first, memory, sizeof first));
    EXPECT(first == 0x09090909);
    show("through registered memory", first);

    CHECK(cuMemFree(memory));
    CHECK(cuMemFreeHost(mapped));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
