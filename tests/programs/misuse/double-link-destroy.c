// A link state is destroyed twice; the control makes a second state, perhaps at the same address.
// expect: link-use-after-destroy
// crashes: SIGABRT
#include "program.h"

int main(void)
{
    begin();
    CUlinkState state = NULL;
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkDestroy(state));
#ifdef VIOLATE
    MISUSE(cuLinkDestroy(state));
#else
    CHECK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK(cuLinkDestroy(state));
#endif
    end();
    return success();
}
