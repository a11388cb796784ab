// The second kernel may start before the first has ended, and changes the same memory; the
// control's second kernel waits.
// expect: launch-config-serialization-no-grid-sync
// needs: a GPU with programmatic launches (sm_90)
#include "program.h"

enum { COUNT = 64, BYTES = COUNT * 4 };

/* the null driver knows the kernel by its name */
#define MIX(BEGIN)                                                                              \
    PTX_HEAD_90 ".visible .entry cutape_mix(.param .u64 out, .param .u64 in, .param .u32 n, "   \
                ".param .u32 seed)\n{\n .reg .b64 %out;\n .reg .b32 %value, %seed;\n" BEGIN      \
                " ld.param.u64 %out, [out];\n cvta.to.global.u64 %out, %out;\n"                 \
                " ld.param.u32 %seed, [seed];\n ld.global.u32 %value, [%out];\n"                \
                " mad.lo.u32 %value, %value, 3, %seed;\n st.global.u32 [%out], %value;\n ret;\n}\n"

static const char starts_next[] = MIX(" griddepcontrol.launch_dependents;\n");
#ifdef VIOLATE
static const char follows[] = MIX("");
#else
static const char follows[] = MIX(" griddepcontrol.wait;\n");
#endif

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0, other = 0;
    uint32_t count = COUNT, seeds[2] = {1, 2};
    CUmodule one = load_ptx(starts_next), next = load_ptx(follows);
    CUfunction first = function_of(one, "cutape_mix"), second = function_of(next, "cutape_mix");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemAlloc(&other, BYTES));
    CHECK(cuMemsetD32(memory, 7, COUNT));
    CHECK(cuMemsetD32(other, 5, COUNT));
    CHECK(cuCtxSynchronize());
    void *parameters[] = {&memory, &other, &count, &seeds[0]};
    launch(first, 1, 1, stream, parameters);
    parameters[3] = &seeds[1];
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = configuration(1, 1, stream, &attribute, 1);
    CHECK(cuLaunchKernelEx(&config, second, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(other));
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(next));
    CHECK(cuModuleUnload(one));
    end();
    return success();
}
