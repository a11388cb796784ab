// A module that the program did not load is reached through cuFuncGetModule and unloaded; the
// control unloads its own.
// expect: module-unload-runtime-owned
// needs: unrecorded-load
// replay-skips: cuFuncGetModule cuModuleUnload
// The module is loaded through the driver's own functions, which the recorder does not intercept:
// in a trace of the CUDA runtime the loads of its modules are missing, too.
#define _GNU_SOURCE
#include "program.h"

#ifdef VIOLATE
#include "symbol_table.h"

struct search {
    const char *name;
    void *found;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    void *symbol = strchr(info->dlpi_name, '/') != NULL ? defined_symbol(info, search->name) : NULL;
    (void)size;
    if (symbol != NULL)
        search->found = symbol;
    return 0;
}

/* A function of the object that was loaded last among those that define it: the driver, whatever
 * poses as it. */
static void *driver_symbol(const char *name)
{
    struct search search = {name, NULL};
    dl_iterate_phdr(visit, &search);
    EXPECT(search.found != NULL);
    return search.found;
}
#endif

int main(void)
{
    begin();
    CUmodule module = NULL;
#ifdef VIOLATE
    CUmodule hidden = NULL;
    CUfunction function = NULL;
    CUresult (*load)(CUmodule *, const void *) = driver_symbol("cuModuleLoadData");
    CUresult (*get)(CUfunction *, CUmodule, const char *) = driver_symbol("cuModuleGetFunction");
    CHECK(load(&hidden, PTX_FILL));
    CHECK(get(&function, hidden, "fill"));
    CHECK(cuFuncGetModule(&module, function));
    MISUSE(cuModuleUnload(module));
#else
    CUmodule own = load_ptx(PTX_FILL);
    CHECK(cuFuncGetModule(&module, function_of(own, "fill")));
    EXPECT(module == own);
    CHECK(cuModuleUnload(module));
#endif
    end();
    return success();
}
