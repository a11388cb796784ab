// Calls functions that only driver.c has, in the way that its argument says. What it prints is the
// same bare and recorded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_api.h"

#include "newer.h"

static int twice(int value) { return 2 * value; }

static int call_again(int value) { return cudbgNewThing() + value; }

static void *thread(void *sum) {
  *(double *)sum = cuNewVariadic(3, 1.0, 2.0, 4.0);
  return NULL;
}

static void show_calls(void) {
  for (int round = 0; round < 2; round++) {
    printf("%g\n", cuNewSum(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
    printf("%g\n", cuNewVariadic(9, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0));
    struct large large = cuNewLarge(100);
    printf("%ld %ld\n", large.words[0], large.words[8]);
    printf("%d %d\n", cuNewCalling(twice, 21), cuNewCalling(call_again, 1));
    errno = 5 + round;
    int before = cuNewErrno(7);
    printf("%d %d\n", before, errno);
  }
}

static int find(const char *way) {
  int is_new = strcmp(way, "dlmopen") == 0;
  void *handle = is_new ? dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)
                        : dlopen(strcmp(way, "dlopen") == 0 ? "libcuda.so.1" : "libcuda.so",
                                 RTLD_LAZY);
  if (strcmp(way, "default") == 0) handle = RTLD_DEFAULT;
  int (*thing)(void) = (int (*)(void))dlsym(handle, "cudbgNewThing");
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(handle, "cuInit");
  printf("%s: %d %d %d\n", way, init ? init(0) : -1, thing ? thing() : -1, thing ? thing() : -1);
  printf("%d\n", dlsym(handle, "cuNowhere") != NULL);
  return 0;
}

int main(int count, char **words) {
  const char *way = count > 1 ? words[1] : "linked";
  if (strcmp(way, "linked") == 0) {
    CUdevice device = -1;
    int result = cuInit(0);
    printf("%d %d\n", result, cuDeviceGet(&device, 0));
    show_calls();
    return 0;
  }
  if (strcmp(way, "first") == 0) {
    // Nothing else is ever called.
    printf("%d\n", cudbgNewThing());
    return 0;
  }
  if (strcmp(way, "threads") == 0) {
    pthread_t threads[8];
    double sums[8];
    for (int index = 0; index < 8; index++)
      pthread_create(&threads[index], NULL, thread, &sums[index]);
    for (int index = 0; index < 8; index++) {
      pthread_join(threads[index], NULL);
      printf("%g\n", sums[index]);
    }
    return cuInit(0);
  }
  if (strcmp(way, "fork") == 0) {
    int result = cuInit(0);
    printf("%d %d\n", result, cudbgNewThing());
    fflush(stdout);
    if (fork() == 0) {
      printf("%d\n", cudbgNewThing());
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    wait(&status);
    printf("%d\n", status);
    return 0;
  }
  return find(way);
}
