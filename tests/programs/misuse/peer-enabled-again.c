// A library enables access between its devices when it is set up, which the program has done
// already, and takes the answer for a failure. The control takes it for what it is.
// https://github.com/owl-project/owl/issues/184
// expect: peer-enable-state
// null-driver: CUTAPE_NULL_DEVICES=2
// needs: two GPUs that can access each other
#include "program.h"

static CUcontext contexts[2];

static int set_up(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CUresult result = cuCtxEnablePeerAccess(contexts[1 - i], 0);
        if (result != CUDA_SUCCESS)
            return -1;
    }
    return 0;
}

int main(void)
{
    begin();
    CUdevice second = 0;
    contexts[0] = context;
    CHECK(cuDeviceGet(&second, 1));
    CHECK(cuCtxCreate(&contexts[1], NULL, 0, second));
#ifdef VIOLATE
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuCtxEnablePeerAccess(contexts[1], 0));
    EXPECT(set_up() < 0);
#else
    EXPECT(set_up() == 0);
#endif
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuCtxDestroy(contexts[1]));
    end();
    return success();
}
