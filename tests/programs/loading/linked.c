/* Linked to libcuda.so.1; also built with DT_RPATH and with DT_RUNPATH. */
#include "loading.h"

init_function cuInit;
number_function cuDriverGetVersion, cuDeviceGetCount;

int main(void) { return ask(cuInit, cuDriverGetVersion, cuDeviceGetCount); }
