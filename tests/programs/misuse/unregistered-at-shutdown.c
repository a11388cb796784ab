// Host memory that is registered is unregistered when the object that stands for it is disposed of,
// at shutdown, after the context has been destroyed. The control disposes of it first.
// https://github.com/DeepMLNet/DeepNet/issues/35
// expect: context-resource-after-destroy
#include "program.h"

enum { SIZE = 1 << 16 };

struct registration {
    void *memory;
};

static void dispose(struct registration *registration)
{
    MISUSE(cuMemHostUnregister(registration->memory));
    free(registration->memory);
}

int main(void)
{
    CUcontext own = NULL;
    struct registration registration = {aligned_alloc(4096, SIZE)};
    EXPECT(registration.memory != NULL);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate(&own, NULL, 0, device));
    CHECK(cuMemHostRegister(registration.memory, SIZE, 0));
#ifdef VIOLATE
    CHECK(cuCtxDestroy(own));
    dispose(&registration);
#else
    dispose(&registration);
    CHECK(cuCtxDestroy(own));
#endif
    return success();
}
