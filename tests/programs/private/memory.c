/* Device memory that no recorded call made, as OptiX gets it from private tables of the driver: here
 * it is allocated past the recorder. Copies go there and come back, and a kernel writes there. */
#define _GNU_SOURCE
#include "program.h"
#include "unrecorded.h"

typedef CUresult (*Allocate)(CUdeviceptr *, size_t);

enum { ROUNDS = 40, LENGTH = 256 };

int main(void)
{
    begin();
    uint8_t bytes[LENGTH], back[LENGTH];
    for (int at = 0; at < LENGTH; at++)
        bytes[at] = (uint8_t)(at * 7);
    CUmodule module = load_ptx(PTX_MARK);
    CUfunction mark = function_of(module, "mark");
    CUdeviceptr own = 0, copy = 0, private = 0;
    CHECK(cuMemAlloc(&own, LENGTH));
    CHECK(cuMemAlloc(&copy, LENGTH));
    CHECK(cuMemsetD8(copy, 0, LENGTH));
    Allocate allocate = (Allocate)unrecorded("cuMemAlloc_v2", cuMemAlloc);
    CHECK(allocate(&private, LENGTH));
    CHECK(cuMemcpyHtoD(own, bytes, LENGTH));
    CHECK(cuMemcpyDtoH(back, own, LENGTH));
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(cuMemcpyDtoDAsync(private, own, LENGTH, NULL));
        CHECK(cuMemcpyDtoDAsync(copy, private, LENGTH, NULL));
        void *parameters[] = {&private};
        launch(mark, 1, 1, NULL, parameters);
        CHECK(cuMemcpyDtoH(back, copy, LENGTH));
        EXPECT(memcmp(back, bytes, LENGTH) == 0);
    }
    CHECK(cuMemFree(own));
    CHECK(cuMemFree(copy));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
