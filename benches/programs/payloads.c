/* Copies to the device whose bytes are new, equal to others in the trace, or in a mapped file.
 *
 *   payloads KIBIBYTES ROUNDS FILE
 *
 * It prints lines of "name value": MiB/s of the median copy of each kind. The file is written. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_api.h"

static size_t length;
static CUdeviceptr target;
static double *times;

static double nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void copy(int round, const void *from)
{
    double start = nanoseconds();
    if (cuMemcpyHtoD(target, from, length) != CUDA_SUCCESS)
        exit(1);
    times[round] = nanoseconds() - start;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void show(const char *name, int rounds)
{
    qsort(times, rounds, sizeof *times, compare);
    printf("%s_mib_s %.0f\n", name, length / 1048576.0 / times[rounds / 2] * 1e9);
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    length = strtoul(words[1], NULL, 10) << 10;
    int rounds = atoi(words[2]);
    times = malloc(rounds * sizeof *times);
    uint64_t *first = malloc(length), *second = malloc(length);
    int file = open(words[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (times == NULL || first == NULL || second == NULL || file < 0)
        return 1;
    for (size_t i = 0; i < length / 8; i++)
        first[i] = second[i] = i * 0x9e3779b97f4a7c15;
    if (write(file, first, length) != (ssize_t)length)
        return 1;
    void *mapped = mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED || cuInit(0) != CUDA_SUCCESS)
        return 1;
    cuMemAlloc(&target, length);
    for (int round = 0; round < rounds; round++)
        copy(round, mapped);
    show("mapped", rounds);
    copy(0, first);
    for (int round = 0; round < rounds; round++)
        copy(round, round % 2 ? first : second);
    show("unchanged", rounds);
    for (int round = 0; round < rounds; round++) {
        /* Other memory each time, which has been copied from with other bytes. */
        uint64_t *here = round % 2 ? first : second;
        here[0] = round / 2 % 2;
        copy(round, here);
    }
    show("equal", rounds);
    for (int round = 0; round < rounds; round++) {
        first[length / 16] = 1000 + round;
        first[0] = first[length / 8 - 1] = 1000 + round;
        copy(round, first);
    }
    show("new", rounds);
    /* Alike in every sampled place. */
    for (int round = 0; round < rounds; round++) {
        first[length / 8 / 2 + length / 8 / 5] = 5000 + round;
        copy(round, first);
    }
    show("alike", rounds);
    return 0;
}
