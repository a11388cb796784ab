// A kernel gets a struct that holds the address of freed memory, which it does not touch. A context
// was pushed for the free and never popped. The control frees the memory after the launch is over.
// expect: memory-use-after-free-kernel-argument
#include "program.h"

struct arguments {
    CUdeviceptr out;
    uint32_t a;
    uint16_t b;
    uint8_t c;
    int64_t d;
    float e;
};

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_BY_STRUCT);
    CUfunction by_struct = function_of(module, "by_struct");
    CUdeviceptr out = 0, memory = 0;
    CHECK(cuMemAlloc(&out, 20));
    CHECK(cuMemAlloc(&memory, 4096));
    struct arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.out = out;
    arguments.d = (int64_t)memory;
    void *parameters[] = {&arguments};
#ifdef VIOLATE
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuMemFree(memory));
#endif
    launch(by_struct, 1, 1, NULL, parameters);
    CHECK(cuCtxSynchronize());
#ifndef VIOLATE
    CHECK(cuMemFree(memory));
#endif
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
