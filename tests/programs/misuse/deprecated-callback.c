// A callback of cuStreamAddCallback; the control uses cuLaunchHostFunc.
// expect: errors-deprecated-api
#include "program.h"

#ifdef VIOLATE
static void callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    *(int *)data += 1;
}
#else
static void function(void *data)
{
    *(int *)data += 1;
}
#endif

int main(void)
{
    begin();
    CUstream stream = NULL;
    int calls = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
#ifdef VIOLATE
    CHECK(cuStreamAddCallback(stream, callback, &calls, 0));
#else
    CHECK(cuLaunchHostFunc(stream, function, &calls));
#endif
    CHECK(cuStreamSynchronize(stream));
    EXPECT(calls == 1);
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
