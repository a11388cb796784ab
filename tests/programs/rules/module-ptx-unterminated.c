// PTX fills its pages to the last byte, no NUL behind it; in the control the NUL is the last byte.
// expect: module-ptx-unterminated
// crashes: SIGSEGV
// That the driver reads on until it faults is an assumption; measured was only that it succeeds by
// luck on heap memory.
#include "program.h"
#include <sys/mman.h>

int main(void)
{
    begin();
    size_t page = (size_t)sysconf(_SC_PAGESIZE), length = strlen(PTX_FILL);
    EXPECT(length < page);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(pages != MAP_FAILED);
    /* what lies behind a mapping is not the program's */
    EXPECT(mprotect(pages + page, page, PROT_NONE) == 0);
    CUmodule module = NULL;
#ifdef VIOLATE
    char *text = pages + page - length;
    memcpy(text, PTX_FILL, length);
    CUresult result = cuModuleLoadData(&module, text);
    if (result == CUDA_SUCCESS)
        CHECK(cuModuleUnload(module));
#else
    char *text = pages + page - length - 1;
    memcpy(text, PTX_FILL, length + 1);
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleUnload(module));
#endif
    EXPECT(munmap(pages, 2 * page) == 0);
    end();
    return success();
}
