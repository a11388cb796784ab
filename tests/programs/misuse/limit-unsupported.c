// The depth of synchronization inside kernels is set on a device that has none (compute capability
// 9.0 and later); the control sets the size of stacks.
// expect: context-limit-order
// null-driver: CUTAPE_NULL_CAPABILITY=9.0
// needs: a device of compute capability 9.0 or later
#include "program.h"

int main(void)
{
    begin();
#ifdef VIOLATE
    MISUSE(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4));
#else
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
#endif
    end();
    return success();
}
