/* clean PROGRAM WORDS: executes that program with an empty environment. */
#include <unistd.h>

int main(int count, char **words)
{
    char *none[] = {0};
    return count > 1 ? execve(words[1], words + 1, none) : 1;
}
