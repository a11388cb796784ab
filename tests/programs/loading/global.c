/* global NAME: opens NAME with RTLD_GLOBAL and looks functions up in RTLD_DEFAULT. */
#define _GNU_SOURCE
#include "loading.h"

int main(int count, char **words)
{
    if (count < 2 || !dlopen(words[1], RTLD_LAZY | RTLD_GLOBAL))
        return ask_opened(NULL);
    return ask((init_function *)dlsym(RTLD_DEFAULT, "cuInit"),
               (number_function *)dlsym(RTLD_DEFAULT, "cuDriverGetVersion"),
               (number_function *)dlsym(RTLD_DEFAULT, "cuDeviceGetCount"));
}
