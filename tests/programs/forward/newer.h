// What driver.c has beside the driver API.
struct large {
  long words[9];
};

double cuNewSum(long, double, long, double, long, double, long, double, long, double, long, double,
                long, double, long, double, double, double);
double cuNewVariadic(int count, ...);
struct large cuNewLarge(long seed);
int cuNewCalling(int (*function)(int), int value);
int cuNewErrno(int value);
int cudbgNewThing(void);
