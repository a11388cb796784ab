// A primary context is retained before cuInit; the control initializes first.
// expect: init-call-outside-driver-lifetime
#include "program.h"

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef VIOLATE
    MISUSE(cuDevicePrimaryCtxRetain(&context, 0));
#endif
    begin();
    end();
    return success();
}
