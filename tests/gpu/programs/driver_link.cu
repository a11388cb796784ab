// nvcc: -lcuda
// The driver's linker: two PTX texts, what it says of them, and the cubin that comes out.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>

#define CHECK(x) do { CUresult e = (x); if (e) { const char *name; cuGetErrorName(e, &name); \
                                                fprintf(stderr, "%s: %s\n", #x, name); exit(1); \
} } while (0)

const char *caller =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b32 out) twice(.param .b32 in);\n"
    ".visible .entry fill(.param .u64 values) {\n"
    "  .reg .b32 %r<4>;\n  .reg .b64 %d<4>;\n"
    "  ld.param.u64 %d1, [values];\n  cvta.to.global.u64 %d1, %d1;\n  mov.u32 %r1, %tid.x;\n"
    "  {\n    .param .b32 in;\n    .param .b32 out;\n    st.param.b32 [in], %r1;\n"
    "    call (out), twice, (in);\n    ld.param.b32 %r2, [out];\n  }\n"
    "  mul.wide.u32 %d2, %r1, 4;\n  add.s64 %d3, %d1, %d2;\n  st.global.u32 [%d3], %r2;\n  ret;\n"
    "}\n";

const char *callee =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .func (.param .b32 out) twice(.param .b32 in) {\n"
    "  .reg .b32 %r<3>;\n  ld.param.b32 %r1, [in];\n  add.u32 %r2, %r1, %r1;\n"
    "  st.param.b32 [out], %r2;\n  ret;\n}\n";

struct Link {
    CUlinkState state;
    char said[4096], complained[4096];
    // The driver writes into both logs and into this array until the link is destroyed.
    void *values[5] = {said, (void *)sizeof said, complained, (void *)sizeof complained, (void *)1};

    Link() {
        said[0] = complained[0] = 0;
        CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                  CU_JIT_ERROR_LOG_BUFFER,
                                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
        CHECK(cuLinkCreate(5, options, values, &state));
    }
    CUresult add(const char *ptx, const char *name) {
        return cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)ptx, strlen(ptx) + 1, name, 0,
                             nullptr, nullptr);
    }
};

int main() {
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));

    Link link;
    CHECK(link.add(caller, "caller.ptx"));
    CHECK(link.add(callee, "callee.ptx"));
    void *cubin;
    size_t size;
    CHECK(cuLinkComplete(link.state, &cubin, &size));
    CUmodule module;
    CHECK(cuModuleLoadData(&module, cubin));
    CHECK(cuLinkDestroy(link.state));
    printf("the linker said %s\n", strlen(link.said) ? "something" : "nothing");

    CUfunction fill;
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, 64 * sizeof(int)));
    void *arguments[] = {&memory};
    CHECK(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    int back[64];
    CHECK(cuMemcpyDtoH(back, memory, sizeof back));
    printf("%d %d %d\n", back[0], back[1], back[63]);

    CHECK(cuMemFree(memory));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));
    puts("EXIT-SUCCESS");
}
