// A driver that is newer than the registry: a few functions of the API, and unknown ones.
#include <errno.h>
#include <stdarg.h>

#include "newer.h"

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetCount(int *count) {
  *count = 1;
  return 0;
}

// More words than registers, among them numbers in vector registers.
double cuNewSum(long a, double b, long c, double d, long e, double f, long g, double h, long i,
                double j, long k, double l, long m, double n, long o, double p, double q,
                double r) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k +
         12 * l + 13 * m + 14 * n + 15 * o + 16 * p + 17 * q + 18 * r;
}

double cuNewVariadic(int count, ...) {
  va_list list;
  double sum = 0;
  va_start(list, count);
  while (count-- > 0) sum = sum * 2 + va_arg(list, double);
  va_end(list);
  return sum;
}

struct large cuNewLarge(long seed) {
  struct large large;
  for (int index = 0; index < 9; index++) large.words[index] = seed + index;
  return large;
}

int cuNewCalling(int (*function)(int), int value) { return function(value); }

int cuNewErrno(int value) {
  int before = errno;
  errno = value;
  return before;
}

int cudbgNewThing(void) { return 41; }

// The real driver has this one.
int cudbgGetAPIVersion(unsigned *major, unsigned *minor, unsigned *revision) {
  *major = 13;
  *minor = 4;
  *revision = 5;
  return 0;
}

// Not a function: a jump cannot forward it.
int cuNewNumber = 7;
