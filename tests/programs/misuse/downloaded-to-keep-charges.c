// Positions are set through a download, so that the fourth component of each survives, but nothing
// has been written there yet; the control clears the array when it is allocated.
// https://github.com/openmm/openmm/issues/2740
// expect: memory-uninitialised-read
#include "program.h"

enum { ATOMS = 64 };

struct position {
    float x, y, z, charge;
};

static void set_positions(CUdeviceptr array, const float (*positions)[3])
{
    static struct position host[ATOMS];
    CHECK(cuMemcpyDtoH(host, array, sizeof host));
    for (int atom = 0; atom < ATOMS; atom++) {
        host[atom].x = positions[atom][0];
        host[atom].y = positions[atom][1];
        host[atom].z = positions[atom][2];
    }
    CHECK(cuMemcpyHtoD(array, host, sizeof host));
}

int main(void)
{
    begin();
    static const float positions[ATOMS][3];
    CUdeviceptr array = 0;
    CHECK(cuMemAlloc(&array, ATOMS * sizeof(struct position)));
#ifndef VIOLATE
    CHECK(cuMemsetD32(array, 0, ATOMS * 4));
#endif
    set_positions(array, positions);
    CHECK(cuMemFree(array));
    end();
    return success();
}
