// Each step of a solver allocates device memory for its grids, copies them there, runs the kernel,
// and frees the memory. The control allocates it once, before the steps.
// https://github.com/zer011b/fdtd3d/issues/43
// expect: performance-allocation-churn
#include "program.h"

enum { STEPS = 120, GRIDS = 2, VALUES = 1024 };

struct solver {
    CUfunction update;
    CUdeviceptr grids[GRIDS];
    float values[GRIDS][VALUES];
};

static void allocate(struct solver *solver)
{
    for (int i = 0; i < GRIDS; i++)
        CHECK(cuMemAlloc(&solver->grids[i], sizeof solver->values[i]));
}

static void release(const struct solver *solver)
{
    for (int i = 0; i < GRIDS; i++)
        CHECK(cuMemFree(solver->grids[i]));
}

static void step(struct solver *solver)
{
#ifdef VIOLATE
    allocate(solver);
#endif
    uint32_t count = VALUES;
    float factor = 0.5f;
    void *parameters[] = {&count, &factor, &solver->grids[0], &solver->grids[1]};
    for (int i = 0; i < GRIDS; i++)
        CHECK(cuMemcpyHtoD(solver->grids[i], solver->values[i], sizeof solver->values[i]));
    launch(solver->update, 8, 128, NULL, parameters);
    CHECK(cuMemcpyDtoH(solver->values[1], solver->grids[1], sizeof solver->values[1]));
#ifdef VIOLATE
    release(solver);
#endif
}

int main(void)
{
    begin();
    static struct solver solver;
    CUmodule module = load_ptx(PTX_SAXPY);
    solver.update = function_of(module, "saxpy");
#ifndef VIOLATE
    allocate(&solver);
#endif
    for (int i = 0; i < STEPS; i++)
        step(&solver);
#ifndef VIOLATE
    release(&solver);
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
