// The same question five thousand times; the control asks once.
// expect: performance-query-storm
#include "program.h"

int main(void)
{
    begin();
    int value = 0;
#ifdef VIOLATE
    enum { TIMES = 5000 };
#else
    enum { TIMES = 1 };
#endif
    for (int i = 0; i < TIMES; i++)
        CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    EXPECT(value > 0);
    end();
    return success();
}
