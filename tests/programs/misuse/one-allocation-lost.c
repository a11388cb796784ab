// A program returns early from one of its functions, and never frees the scratch memory of it; all
// other memory it frees. The control frees that too.
// expect: memory-leak
#include "program.h"

static int sum(CUdeviceptr values, size_t count)
{
    CUdeviceptr scratch = 0;
    CHECK(cuMemAlloc(&scratch, count));
    CHECK(cuMemcpyDtoD(scratch, values, count));
#ifdef VIOLATE
    if (count < 8192)
        return 0;
#endif
    CHECK(cuMemFree(scratch));
    return 1;
}

int main(void)
{
    begin();
    CUdeviceptr values = 0;
    CHECK(cuMemAlloc(&values, 4096));
    CHECK(cuMemsetD8(values, 1, 4096));
    show("summed", sum(values, 4096) >= 0);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(values));
    end();
    return success();
}
