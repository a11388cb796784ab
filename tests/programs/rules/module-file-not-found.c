// A module file that is not there is loaded; the control tries two paths and goes on with the one
// that is.
// expect: module-file-not-found
#include "program.h"

int main(void)
{
    begin();
    CUmodule module = NULL;
    char path[64], missing[80];
    write_temporary(path, PTX_FILL, strlen(PTX_FILL));
    snprintf(missing, sizeof missing, "%s.missing", path);
#ifdef VIOLATE
    MISUSE(cuModuleLoad(&module, missing));
#else
    if (cuModuleLoad(&module, missing) != CUDA_SUCCESS)
        CHECK(cuModuleLoad(&module, path));
    CHECK(cuModuleUnload(module));
#endif
    EXPECT(unlink(path) == 0);
    end();
    return success();
}
