// What the programs of this folder share.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)
