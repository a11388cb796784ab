/* Calls that fail on purpose and are handled: what a careful program does is no misuse. */
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);

    /* an optional kernel and an optional variable: asked for, not there, not used */
    CUfunction optional = NULL;
    CHECK_RESULT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&optional, module, "fill_fast"));
    CUdeviceptr variable = 0;
    size_t size = 0;
    CHECK_RESULT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&variable, &size, module, "tuning"));
    CUfunction fill = function_of(module, "fill");
    printf("optional symbols are absent\n");

    /* more memory than there is: half as much until it fits, then smaller for sure */
    CUdeviceptr memory = 0;
    CUresult result = cuMemAlloc(&memory, (size_t)1 << 50);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    printf("a pebibyte: %s\n", result_name(result));
    CHECK(cuMemAlloc(&memory, 4096));

    /* polling an event and a stream: NOT_READY is an answer, not a failure */
    uint32_t start = 1, count = 1024;
    void *parameters[] = {&memory, &start, &count};
    CUevent event = NULL;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch(fill, 1, 128, stream, parameters);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
    while ((result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
        usleep(100);
    CHECK(result);

    /* does the driver know this attribute */
    int value = 0;
    result = cuDeviceGetAttribute(&value, (CUdevice_attribute)100000, device);
    printf("unknown attribute: %s\n", result_name(result));
    EXPECT(result == CUDA_ERROR_INVALID_VALUE);

    /* how many devices are there really */
    CUdevice none = -1;
    result = cuDeviceGet(&none, 1000);
    printf("device 1000: %s\n", result_name(result));
    EXPECT(result == CUDA_ERROR_INVALID_DEVICE);

    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
