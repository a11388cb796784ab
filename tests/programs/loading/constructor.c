/* The driver is used before main. */
#include "loading.h"

init_function cuInit;
number_function cuDriverGetVersion, cuDeviceGetCount;

static int status;

static __attribute__((constructor)) void before_main(void)
{
    status = ask(cuInit, cuDriverGetVersion, cuDeviceGetCount);
}

int main(void) { return status; }
