/* open NAME: opens NAME with dlopen. */
#include "loading.h"

int main(int count, char **words)
{
    return ask_opened(count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL);
}
