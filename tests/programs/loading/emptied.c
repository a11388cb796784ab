/* emptied NAME: opens NAME with dlopen after it has emptied its environment. */
#include "loading.h"

#include <stdlib.h>

int main(int count, char **words)
{
    clearenv();
    return ask_opened(count > 1 ? dlopen(words[1], RTLD_NOW) : NULL);
}
