// A module that the program did not load is reached through cuFuncGetModule and unloaded; the control unloads its own.
// expect: module-unload-runtime-owned
// needs: unrecorded-load
// replay-skips: cuFuncGetModule cuModuleUnload
// The module is loaded by the driver's own functions, past whatever stands in front of it, as the runtime's modules reach a
// program whose trace does not show their loads.
#define _GNU_SOURCE
#include "program.h"
#include <dlfcn.h>
#include <link.h>

#ifdef VIOLATE
/* A function of the library that was loaded last among those that define it: the driver, whatever poses as it. */
static void *driver_symbol(const char *name)
{
    void *self = dlopen(NULL, RTLD_LAZY), *found = NULL;
    struct link_map *map = NULL;
    EXPECT(self != NULL && dlinfo(self, RTLD_DI_LINKMAP, &map) == 0);
    for (; map != NULL; map = map->l_next) {
        Dl_info info;
        void *library = strchr(map->l_name, '/') != NULL ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (library == NULL)
            continue;
        void *symbol = library == map ? dlsym(library, name) : NULL; /* glibc's handles are its link maps */
        if (symbol != NULL && dladdr(symbol, &info) != 0 && (uintptr_t)info.dli_fbase == map->l_addr)
            found = symbol;
        dlclose(library);
    }
    dlclose(self);
    EXPECT(found != NULL);
    return found;
}
#endif

int main(void)
{
    begin();
    CUmodule module = NULL;
#ifdef VIOLATE
    CUmodule hidden = NULL;
    CUfunction function = NULL;
    CHECK(((CUresult(*)(CUmodule *, const void *))driver_symbol("cuModuleLoadData"))(&hidden, PTX_FILL));
    CHECK(((CUresult(*)(CUfunction *, CUmodule, const char *))driver_symbol("cuModuleGetFunction"))(&function, hidden, "fill"));
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
