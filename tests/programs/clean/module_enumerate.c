/* The functions of a module, counted and listed; each handle has a name, and the one by name is
 * among them. */
#include "program.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction functions[5] = {0}; /* larger than the count: the rest is not used */
    const char *names[3] = {0};
    unsigned count = 0;
    CHECK(cuModuleGetFunctionCount(&count, module));
    EXPECT(count == 3);
    CHECK(cuModuleEnumerateFunctions(functions, 5, module));
    CUfunction saxpy = function_of(module, "saxpy");
    for (unsigned i = 0; i < count; i++) {
        CHECK(cuFuncGetName(&names[i], functions[i]));
        if (strcmp(names[i], "saxpy") == 0)
            EXPECT(functions[i] == saxpy);
    }
    qsort(names, count, sizeof names[0], by_text);
    for (unsigned i = 0; i < count; i++)
        printf("function %s\n", names[i]);
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
