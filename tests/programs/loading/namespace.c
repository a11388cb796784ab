/* namespace NAME: opens NAME with dlmopen in a new namespace. */
#define _GNU_SOURCE
#include "loading.h"

int main(int count, char **words)
{
    return ask_opened(count > 1 ? dlmopen(LM_ID_NEWLM, words[1], RTLD_NOW) : NULL);
}
