/* The primary context: state, flags, retained twice, released twice, one handle throughout. A reset
 * is no release: what was retained before is released after it. */
#include "program.h"

static void show_state(const char *when)
{
    unsigned flags = ~0u;
    int active = -1;
    CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    printf("%s: %s, schedule flags %u\n", when, active ? "active" : "inactive",
           flags & CU_CTX_SCHED_MASK);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    show_state("before");
    CHECK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
    CUcontext first = NULL, second = NULL, current = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&first, device));
    CHECK(cuDevicePrimaryCtxRetain(&second, device));
    EXPECT(first != NULL && first == second);
    show_state("retained");

    CHECK(cuCtxSetCurrent(first));
    CHECK(cuCtxGetCurrent(&current));
    EXPECT(current == first);
    CUdevice of_context = -1;
    CHECK(cuCtxGetDevice(&of_context));
    EXPECT(of_context == device);
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemFree(memory));

    CHECK(cuDevicePrimaryCtxRelease(device));
    show_state("released once");
    CHECK(cuCtxSetCurrent(NULL));
    CHECK(cuDevicePrimaryCtxRelease(device));
    show_state("released twice");
    CHECK(cuDevicePrimaryCtxReset(device)); /* there is nothing left that it could take away */

    CHECK(cuDevicePrimaryCtxRetain(&first, device));
    CHECK(cuDevicePrimaryCtxReset(device));
    show_state("reset");
    CHECK(cuDevicePrimaryCtxRelease(device));
    show_state("reset and released");
    return success();
}
