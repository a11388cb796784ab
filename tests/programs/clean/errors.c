/* Names and texts of results; unknown ones are refused. */
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const CUresult RESULTS[] = {
        CUDA_SUCCESS,
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_NOT_INITIALIZED,
        CUDA_ERROR_INVALID_CONTEXT,
        CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUDA_ERROR_FILE_NOT_FOUND,
        CUDA_ERROR_INVALID_HANDLE,
        CUDA_ERROR_NOT_FOUND,
        CUDA_ERROR_NOT_READY,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_NOT_PERMITTED,
        CUDA_ERROR_UNKNOWN,
    };
    CHECK(cuInit(0));
    for (size_t i = 0; i < sizeof RESULTS / sizeof RESULTS[0]; i++) {
        const char *name = NULL, *text = NULL;
        CHECK(cuGetErrorName(RESULTS[i], &name));
        CHECK(cuGetErrorString(RESULTS[i], &text));
        EXPECT(name != NULL && text != NULL && text[0] != '\0');
        printf("%d %s: %s\n", (int)RESULTS[i], name, text);
    }
    const char *name = "unchanged";
    CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &name));
    return success();
}
