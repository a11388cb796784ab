// The cubins of a library are generated into a cache, under names that have changed since a test
// was written, and the test loads the old ones. The control asks the generator for the name.
// https://github.com/NervanaSystems/neon/issues/360
// expect: module-file-not-found
#include "program.h"

static char generated[64];

static void load(CUmodule *module)
{
#ifdef VIOLATE
    char path[128];
    snprintf(path, sizeof path, "%s.old-name.cubin", generated);
#else
    const char *path = generated;
#endif
    MISUSE(cuModuleLoad(module, path));
}

int main(void)
{
    begin();
    CUmodule module = NULL;
    write_temporary(generated, PTX_FILL, sizeof PTX_FILL);
    load(&module);
    if (module != NULL)
        CHECK(cuModuleUnload(module));
    EXPECT(unlink(generated) == 0);
    end();
    return success();
}
