/* A callback for the driver's error log: what it is told about a refused call, and nothing after it
 * was unregistered. */
#include "program.h"

static unsigned told;
static char last[256];

static void CUDA_CB remember(void *data, CUlogLevel level, char *message, size_t length)
{
    told += data == &told && level == CU_LOG_LEVEL_ERROR;
    snprintf(last, sizeof last, "%.*s", (int)length, message);
}

int main(void)
{
    begin();
    CUlogsCallbackHandle callback = NULL;
    CUresult result = cuLogsRegisterCallback(remember, &told, &callback);
    if (result != CUDA_SUCCESS) {
        /* A driver before 12.9 has no log. */
        EXPECT(result == CUDA_ERROR_NOT_SUPPORTED);
        end();
        return success();
    }
    CUdeviceptr memory = 0;
    EXPECT(cuMemAlloc(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(told > 0 && strstr(last, "CUDA_ERROR_INVALID_VALUE"));
    unsigned before = told;
    CHECK(cuLogsUnregisterCallback(callback));
    EXPECT(cuMemAlloc(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(told == before);
    end();
    return success();
}
