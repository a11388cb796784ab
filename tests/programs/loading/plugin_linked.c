/* A plugin that is linked to libcuda.so.1. */
#include "loading.h"

init_function cuInit;
number_function cuDriverGetVersion, cuDeviceGetCount;

int run(const char *name)
{
    (void)name;
    return ask(cuInit, cuDriverGetVersion, cuDeviceGetCount);
}
