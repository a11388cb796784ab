// A kernel writes past all memory, and the allocator sees that as a failed allocation: it frees
// its cached block and tries again. The control's kernel gets memory of its own.
// https://github.com/kaldi-asr/kaldi/issues/4306
// expect: errors-async-misattributed errors-sticky-continue
// null-driver: CUTAPE_NULL_FAIL=cuMemAlloc_v2@3=700,cuMemAlloc_v2@4=700,cuMemFree_v2@*=700
#include "program.h"

static CUdeviceptr cached;

static CUresult allocate(CUdeviceptr *memory, size_t bytes)
{
    CUresult result = cuMemAlloc(memory, bytes);
    if (result != CUDA_SUCCESS && cached) {
        cuMemFree(cached);
        cached = 0;
        result = cuMemAlloc(memory, bytes);
    }
    return result;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction fill = function_of(module, "fill");
    CUdeviceptr lattice = 0, region = 0;
    uint32_t start = 1, count = 64;
    CHECK(cuMemAlloc(&cached, 1 << 20));
    CHECK(cuMemAlloc(&lattice, 256));
#ifdef VIOLATE
    CUdeviceptr target = lattice + ((CUdeviceptr)1 << 40);
#else
    CUdeviceptr target = lattice;
#endif
    void *parameters[] = {&target, &start, &count};
    launch(fill, 1, 64, NULL, parameters);
#ifdef VIOLATE
    CUresult result = allocate(&region, 1 << 20);
    printf("unable to allocate memory: %s\n", result_name(result));
#else
    CHECK(cuCtxSynchronize());
    EXPECT(allocate == allocate && !region);
    end();
#endif
    return success();
}
