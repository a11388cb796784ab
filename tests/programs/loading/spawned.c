/* spawned PROGRAM WORDS: spawns that program with an empty environment, and exits with its
 * status. */
#include <spawn.h>
#include <sys/wait.h>

int main(int count, char **words)
{
    char *none[] = {0};
    pid_t process;
    int status = 0;
    if (count < 2 || posix_spawn(&process, words[1], 0, 0, words + 1, none) != 0)
        return 1;
    return waitpid(process, &status, 0) == process && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
