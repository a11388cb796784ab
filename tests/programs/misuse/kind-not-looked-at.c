// A runtime deletes memory without a look at its kind, so host memory goes to cuMemFree, whose
// error is dropped; the control looks at the kind.
// https://github.com/llvm/llvm-project/pull/91134
// expect: memory-free-wrong-kind
#include "program.h"

enum kind { KIND_DEVICE, KIND_HOST };

static void *data_alloc(size_t bytes, enum kind kind)
{
    void *memory = NULL;
    CUdeviceptr address = 0;
    if (kind == KIND_HOST) {
        CHECK(cuMemAllocHost(&memory, bytes));
        return memory;
    }
    CHECK(cuMemAlloc(&address, bytes));
    return (void *)(uintptr_t)address;
}

static void data_delete(void *memory, enum kind kind UNUSED)
{
#ifndef VIOLATE
    if (kind == KIND_HOST) {
        CHECK(cuMemFreeHost(memory));
        return;
    }
#endif
    MISUSE(cuMemFree((CUdeviceptr)(uintptr_t)memory));
}

int main(void)
{
    begin();
    void *pinned = data_alloc(4096, KIND_HOST);
    void *target = data_alloc(4096, KIND_DEVICE);
    memset(pinned, 1, 4096);
    CHECK(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)target, pinned, 4096));
    data_delete(target, KIND_DEVICE);
    data_delete(pinned, KIND_HOST);
    end();
    return success();
}
