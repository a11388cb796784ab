// One image is loaded in every round and never unloaded; the control loads it once.
// expect: module-live-growth
#include "program.h"

int main(void)
{
    begin();
#ifdef VIOLATE
    const int rounds = 40;
#else
    const int rounds = 1;
#endif
    for (int round = 0; round < rounds; round++) {
        CUmodule module = load_ptx(PTX_FILL);
        EXPECT(function_of(module, "fill") != NULL);
    }
    end();
    return success();
}
