// An allocation of zero bytes leaves the pointer as it is, and the destructor of the container
// frees it all the same. The control allocates only what is not empty, and clears the pointer
// before.
// https://github.com/ComputationalRadiationPhysics/picongpu/issues/1179
// expect: errors-result-ignored
#include "program.h"

struct container {
    CUdeviceptr memory;
};

static void create(struct container *container, size_t size)
{
#ifdef VIOLATE
    MISUSE(cuMemAlloc(&container->memory, size));
#else
    container->memory = 0;
    if (size > 0)
        CHECK(cuMemAlloc(&container->memory, size));
#endif
}

static void destroy(struct container *container)
{
    MISUSE(cuMemFree(container->memory));
}

int main(void)
{
    begin();
    struct container containers[2];
    memset(containers, 0x44, sizeof containers);
    create(&containers[0], 4096);
    create(&containers[1], 0);
    destroy(&containers[1]);
    destroy(&containers[0]);
    end();
    return success();
}
