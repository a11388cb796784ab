// A capture is ended in a stream that did not begin it; the control ends it where it began.
// expect: stream-capture-bracket
#include "program.h"

int main(void)
{
    begin();
    CUstream first = NULL, second = NULL;
    CUgraph graph = NULL;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
#ifdef VIOLATE
    EXPECT(cuStreamEndCapture(second, &graph) == CUDA_ERROR_ILLEGAL_STATE);
#endif
    CHECK(cuStreamEndCapture(first, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(second));
    CHECK(cuStreamDestroy(first));
    end();
    return success();
}
