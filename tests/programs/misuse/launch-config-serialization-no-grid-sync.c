// The second kernel may start before the first has ended, gets its memory, and does not wait; the
// control's second kernel waits. Both are in the image, as variants of one source.
// https://github.com/gwoltman/gpuowl/pull/33
// expect: launch-config-serialization-no-grid-sync
// needs: a GPU with programmatic launches (sm_90)
#include "program.h"

#define WRITE(value)                                                 \
    " .reg .b64 %out;\n .reg .b32 %value;\n"                         \
    " ld.param.u64 %out, [out];\n cvta.to.global.u64 %out, %out;\n"  \
    " mov.u32 %value, " value ";\n st.global.u32 [%out], %value;\n ret;\n}\n"

static const char kernels[] = PTX_HEAD_90
    ".visible .entry first(.param .u64 out)\n{\n griddepcontrol.launch_dependents;\n" WRITE("1")
    ".visible .entry hasty(.param .u64 out)\n{\n" WRITE("2")
    ".visible .entry waiting(.param .u64 out)\n{\n griddepcontrol.wait;\n" WRITE("2");

int main(void)
{
    begin();
    CUmodule module = load_ptx(kernels);
    CUfunction first = function_of(module, "first");
#ifdef VIOLATE
    CUfunction second = function_of(module, "hasty");
#else
    CUfunction second = function_of(module, "waiting");
#endif
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 256));
    void *parameters[] = {&memory};
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(first, 1, 32, stream, parameters);
    launch(second, 1, 32, stream, parameters);
    launch(first, 1, 32, stream, parameters);
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = configuration(1, 32, stream, &attribute, 1);
    CHECK(cuLaunchKernelEx(&config, second, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
