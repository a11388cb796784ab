/* Nothing at all: copies, memsets and enumerations of size zero leave everything as it was. */
#include "program.h"

int main(void)
{
    begin();
    CUdeviceptr memory = 0;
    CUstream stream = NULL;
    unsigned char in[16], out[16] = {0};
    memset(in, 7, sizeof in);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, sizeof in));
    CHECK(cuMemcpyHtoD(memory, in, sizeof in));
    printf("copy to the device: %s\n", result_name(cuMemcpyHtoD(memory, out, 0)));
    printf("copy to the host: %s\n", result_name(cuMemcpyDtoH(out, memory, 0)));
    printf("copy on the device: %s\n", result_name(cuMemcpyDtoD(memory, memory + 8, 0)));
    printf("copy in a stream: %s\n", result_name(cuMemcpyHtoDAsync(memory, out, 0, stream)));
    printf("memset: %s\n", result_name(cuMemsetD8(memory, 1, 0)));
    printf("memset of words: %s\n", result_name(cuMemsetD32(memory, 1, 0)));
    printf("memset in a stream: %s\n", result_name(cuMemsetD8Async(memory, 1, 0, stream)));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    EXPECT(memcmp(in, out, sizeof in) == 0);

    CUdeviceptr nothing = 0;
    CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&nothing, 0));
    printf("an allocation of nothing is refused\n");

    CUmodule module = load_ptx(PTX_FILL);
    uint32_t start = 9, count = 0;
    void *parameters[] = {&memory, &start, &count};
    launch(function_of(module, "fill"), 1, 32, stream, parameters);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    EXPECT(memcmp(in, out, sizeof in) == 0);
    CHECK(cuModuleUnload(module));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
