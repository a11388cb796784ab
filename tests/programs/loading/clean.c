/* clean PROGRAM WORDS: becomes that program, with nothing in its environment. */
#include <unistd.h>

int main(int count, char **words)
{
    char *none[] = {0};
    return count > 1 ? execve(words[1], words + 1, none) : 1;
}
