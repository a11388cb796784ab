/* Queries and settings of a function: attributes, parameters, module, name, cache, loading
 * state. */
#include "program.h"

static const struct {
    CUfunction_attribute attribute;
    const char *name;
} ATTRIBUTES[] = {
    {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "threads per block"},
    {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, "static shared"},
    {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, "constant"},
    {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, "local"},
    {CU_FUNC_ATTRIBUTE_NUM_REGS, "registers"},
    {CU_FUNC_ATTRIBUTE_PTX_VERSION, "PTX version"},
    {CU_FUNC_ATTRIBUTE_BINARY_VERSION, "binary version"},
    {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, "dynamic shared"},
};

static void show_parameters(CUfunction function)
{
    const char *name = NULL;
    CHECK(cuFuncGetName(&name, function));
    printf("%s(", name);
    size_t offset = 0, size = 0, index = 0;
    CUresult result;
    while ((result = cuFuncGetParamInfo(function, index, &offset, &size)) == CUDA_SUCCESS) {
        printf("%s%zu+%zu", index ? ", " : "", offset, size);
        index++;
    }
    printf(")\n");
    check_result(result, CUDA_ERROR_INVALID_VALUE, "cuFuncGetParamInfo past the last", __FILE__,
                 __LINE__);
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_REDUCE), owner = NULL;
    CUfunction reduce = function_of(module, "reduce");
    CUfunctionLoadingState state;
    CHECK(cuFuncIsLoaded(&state, reduce));
    CHECK(cuFuncLoad(reduce));
    CHECK(cuFuncIsLoaded(&state, reduce));
    EXPECT(state == CU_FUNCTION_LOADING_STATE_LOADED);
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof ATTRIBUTES[0]; i++) {
        int value = -1;
        CHECK(cuFuncGetAttribute(&value, ATTRIBUTES[i].attribute, reduce));
        EXPECT(value >= 0);
        printf("%s: %d\n", ATTRIBUTES[i].name, value);
    }
    int shared = 0, dynamic = 0;
    CHECK(cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, reduce));
    EXPECT(shared >= 512);
    CHECK(cuFuncSetAttribute(reduce, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    CHECK(cuFuncGetAttribute(&dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reduce));
    EXPECT(dynamic >= 1024);
    CHECK(cuFuncSetAttribute(reduce, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
    CHECK(cuFuncSetCacheConfig(reduce, CU_FUNC_CACHE_PREFER_SHARED));
    CHECK(cuFuncGetModule(&owner, reduce));
    EXPECT(owner == module);
    show_parameters(reduce);
    CHECK(cuModuleUnload(module));

    module = load_ptx(PTX_MANY);
    show_parameters(function_of(module, "many"));
    CHECK(cuModuleUnload(module));
    module = load_ptx(PTX_BY_STRUCT);
    show_parameters(function_of(module, "by_struct"));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
